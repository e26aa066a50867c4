
# Stock kazoo does not wait for zklock.  So zklock says where kazoo comes behind it and holds the
# lock all the same: in the log, in zk_lock_queue and in zk_status.

use strict;
use warnings;

use Contender;
use InteropPeer;
use ZklockTest;

my $zk = ZooKeeper->new;
my $kazoo = InteropPeer->kazoo($zk, session_timeout => 20);
my $curator = InteropPeer->curator($zk, session_timeout => 20);
my $node = ZklockNode->started('n', $zk, 'zklock.session_timeout' => '20s', 'zklock.linger' => 0);
my $ours = Contender->zklock($node->backend, $node);

sub kazoo { my ($actor, $kind) = @_; return Contender->foreign($kazoo->actor($actor), $kind); }
sub bypasses { return $node->status('bypasses'); }

# What the log has said so far about a path.
sub warnings
{
	my ($path) = @_;
	my @lines = slurp_file($node->logfile) =~ /WARNING:  lock "\Q$path\E" may not exclude a kazoo client\n.*?DETAIL:  (.*)\n.*?HINT:  (.*)\n/g;
	return @lines;
}

sub wait_for_bypasses { my ($n) = @_; return $node->wait_until("SELECT bypasses = $n FROM zk_status"); }

# --- kazoo comes behind zklock ---

my $stock = kazoo('k1', 'stock');
is($ours->acquire('/jobs/a'), 't', 'zklock holds');
is($stock->acquire('/jobs/a'), 't', 'stock kazoo does not wait');
wait_for_bypasses(1);
is($node->safe_psql('postgres', q{SELECT string_agg(client || ':' || waits_for_us, ' ' ORDER BY position) FROM zk_lock_queue('/jobs/a')}),
	'zklock:true kazoo:false', 'zk_lock_queue shows it');
$zk->wait_until(sub { warnings('/jobs/a') > 0 }, 'the log to say so');
my ($detail, $hint) = warnings('/jobs/a');
like($detail, qr/^A client has created znode "[0-9a-f]{32}__lock__\d{10}" behind this server's/, 'the log names the znode');
like($hint, qr/Curator's names/, 'and says what helps');

# The log names a path once, but the counter has each znode that a ticket's lists show.
$_->release('/jobs/a') foreach $ours, $stock;
is($ours->acquire('/jobs/a'), 't', 'zklock holds again');
is($stock->acquire('/jobs/a'), 't', 'stock kazoo, too');
wait_for_bypasses(2);
$_->release('/jobs/a') foreach $ours, $stock;
is($ours->acquire('/jobs/b'), 't', 'zklock holds another lock');
is($stock->acquire('/jobs/b'), 't', 'stock kazoo, too');
wait_for_bypasses(3);
$zk->wait_until(sub { warnings('/jobs/b') > 0 }, 'the log to say so');
is(scalar(warnings('/jobs/a')), 2, 'one warning a path: detail and hint');
is(scalar(warnings('/jobs/b')), 2, 'and one for the other');
$_->release('/jobs/b') foreach $ours, $stock;

# A znode without a session.
is($ours->acquire('/jobs/c'), 't', 'zklock holds');
$zk->create('/zklock/jobs/c/8f3d5c1e9a7b4d2f8c6e0a1b3d5f7e9c__lock__', sequence => 1);
wait_for_bypasses(4);
$zk->wait_until(sub { warnings('/jobs/c') > 0 }, 'the log to say so');
like((warnings('/jobs/c'))[0], qr/^A client has created znode/, 'a znode that has no session');
$ours->release('/jobs/c');

# --- kazoo does no harm ---

# Kazoo came before zklock: zklock waits.
is($stock->acquire('/jobs/before'), 't', 'stock kazoo holds');
is($ours->try('/jobs/before'), 'f', 'zklock waits for it');
$stock->release('/jobs/before');

# Readers share.
my $reader = Contender->zklock($node->backend, $node,
	acquire => sub { "SELECT zk_read_lock_acquire('$_[0]')" },
	release => sub { "SELECT zk_read_lock_release('$_[0]')" });
my ($stock_reader, $stock_writer) = (kazoo('k1', 'stock_read'), kazoo('k1', 'stock_write'));
is($reader->acquire('/jobs/rw'), 't', 'zklock reads');
is($stock_reader->acquire('/jobs/rw'), 't', 'stock kazoo reads');
$stock_reader->release('/jobs/rw');
is($stock_writer->acquire('/jobs/rw'), 't', 'but it writes as well');
wait_for_bypasses(5);
$_->release('/jobs/rw') foreach $stock_writer, $reader;

# The advice of the hint helps, and Curator needs no help.
foreach my $case ([ q{kazoo with Curator's names}, kazoo('k2', 'mutex'), '' ],
	[ 'Curator', Contender->foreign($curator->actor('c1'), 'mutex'), ':true' ])
{
	my ($who, $other, $waits) = @$case;
	my $path = '/jobs/' . $who =~ s/\W+/_/gr;
	is($ours->acquire($path), 't', "$who: zklock holds");
	$other->queue($zk, $path);
	$node->wait_until_contended($path);
	like($node->safe_psql('postgres', "SELECT client || coalesce(':' || waits_for_us, '') FROM zk_lock_queue('$path') WHERE NOT holds"),
		qr/^\w+\Q$waits\E$/, "$who: zk_lock_queue");
	$ours->release($path);
	is($other->answer, 't', "$who: has waited");
	$other->release($path);
	is(scalar(warnings($path)), 0, "$who: no warning");
}
is(bypasses(), 5, 'none of these was counted');
is(scalar(() = slurp_file($node->logfile) =~ /may not exclude a kazoo client/g), 4, 'four warnings in all');

# A LeaderLatch of Curator's looks only at its own znodes, so it leads beside the holder.
my $latch = $curator->actor('latch');
is($ours->acquire('/jobs/latch'), 't', 'zklock holds');
is($latch->query('acquire latch /zklock/jobs/latch'), 't', 'a LeaderLatch leads');
wait_for_bypasses(6);
like($node->wait_for_log(qr{WARNING:  lock "/jobs/latch" does not exclude a LeaderLatch of Curator\n.*?DETAIL:  A client has created znode "_c_\S+-latch-\d{10}" behind this server's.*\n.*HINT:  Use Curator's LeaderSelector}),
	qr/^\d+$/, 'the log says so');
$ours->release('/jobs/latch');
is($ours->party->errcode(acquire('/jobs/latch')), 'ZK003', 'and the next request is refused');
is($latch->query('release latch /zklock/jobs/latch'), 't', 'the LeaderLatch ends');

$ours->party->quit;
$reader->party->quit;
$node->stop;
done_testing();
