
# The semaphore whose limit is stored in ZooKeeper, on two servers: who is granted a lease when
# the limit changes while leases are held, linger or are waited for; what another client does to
# the limit; and what it costs.

use strict;
use warnings;

use HoldingProxy;
use ZklockTest qw(!acquire !release);

my $zk = ZooKeeper->new;
my $proxy = HoldingProxy->new($zk->hosts);
my @settings = (
	'zklock.session_timeout' => '30s',
	'zklock.connection_timeout' => '2min',
	'zklock.tenure' => '1h',
	'zklock.linger' => '1h');
my $node_a = ZklockNode->started('a', $zk, @settings);
my $node_b = ZklockNode->started('b', undef, @settings, 'zklock.hosts' => $proxy->address);
my ($a1, $a2, $a3, $b1, $b2) =
  map { $_->backend } $node_a, $node_a, $node_a, $node_b, $node_b;

# Without a timeout: the shorter function.
sub acquire
{
	my ($path, $timeout, $quantity) = @_;
	return "SELECT zk_semaphore_acquire('$path')" unless defined $timeout;
	return "SELECT zk_semaphore_acquire('$path', NULL, '$timeout', " . ($quantity // 1) . ')';
}
sub release { my ($path, $quantity) = @_; return "SELECT zk_semaphore_release('$path', " . ($quantity // 1) . ')'; }
sub set_limit { my ($path, $n) = @_; return "SELECT zk_semaphore_set_limit('$path', " . ($n // 'NULL') . ')'; }

sub leases { my ($path) = @_; return "/zklock$path/leases"; }
sub limit { my ($path) = @_; return "/zklock$path/limit"; }

# Begin to acquire, and wait until the backend has the inner mutex and a lease in the queue.
sub wait_with_lease
{
	my ($node, $backend, $path, @how) = @_;
	$backend->send(acquire($path, @how)) if defined $backend;
	$node->wait_until("SELECT count(*) >= 1 FROM zk_locks"
		  . " WHERE path = '$path' AND claim IS NULL AND ticket = 'queued'");
	return;
}

sub waits { my ($backend, $what) = @_; local $Test::Builder::Level = $Test::Builder::Level + 1; return ok(!$backend->is_done, $what); }

# --- a limit is stored, and servers follow it ---

is($a1->query(set_limit('/follow', 2)), '', 'a limit is stored');
is($zk->get(limit('/follow'))->{data}, "\0\0\0\2", 'in four bytes, big-endian');
is($zk->exists(limit('/follow'))->{ephemeralOwner}, 0, 'in a znode that stays');
is($b1->query(q{SELECT zk_semaphore_limit('/follow')}), '2', 'the other server reads it');
is($a1->query(acquire('/follow', '0')), 't', 'one lease for a');
is($b1->query(acquire('/follow', '0')), 't', 'one for b');
is($a2->query(acquire('/follow', '0')), 'f', 'no more for a');
is($b2->query(acquire('/follow', '1 ms')), 'f', 'nor for b');

# Raised: the waiter on the other server gets its lease, and so does the next in turn.
wait_with_lease($node_b, $b2, '/follow');
$a2->send(acquire('/follow'));
$node_a->wait_for_waiter('/follow/locks', 1);
$a1->query(set_limit('/follow', 4));
is($b2->answer, 't', 'raised: the waiter on the other server has its lease');
is($a2->answer, 't', 'and so has the one behind it');
is($a3->query(acquire('/follow', '0')), 'f', 'not one more');

# Lowered: nothing is taken away, and nothing is granted before enough is released.
$b1->query(set_limit('/follow', 2));
is($_->query(q{SELECT zk_lock_is_held('/follow')}), 't', 'lowered: nothing is taken away') foreach $a1, $a2, $b1, $b2;
$a3->send(acquire('/follow'));
$node_a->wait_until(q{SELECT count(*) = 1 FROM zk_locks WHERE path = '/follow' AND claim = 'waiting'});
$_->wait_until(q{SELECT bool_and(contended) FROM zk_locks WHERE path = '/follow' AND granted}) foreach $node_a, $node_b;
foreach my $backend ($b1, $a1)
{
	my ($lease) = split /\n/, $backend->query(q{SELECT znode FROM zk_locks WHERE path = '/follow' AND pid = pg_backend_pid()});
	$backend->query(release('/follow'));
	$zk->wait_for_gone(leases('/follow') . "/$lease");
	waits($a3, 'one is released: still as many as the limit are held');
}
wait_with_lease($node_a, undef, '/follow');
$b2->query(release('/follow'));
is($a3->answer, 't', 'fewer than the limit are held: the waiter has one');
is($b1->query(acquire('/follow', '0')), 'f', 'and that is all');
$_->query('SELECT zk_lock_release_all()') foreach $a2, $a3;
$zk->wait_until(sub { @{ $zk->children(leases('/follow')) } <= 2 }, 'the leases to go or linger');

# --- leases that linger, and leases that are handed on within a server ---

# The server of a has two leases that linger.  It gives them up when it hears that there is one.
$a1->query(set_limit('/linger', 2));
foreach (1 .. 3)
{
	$a1->query(acquire('/linger', '1min', 2));
	$a1->query(release('/linger', 2));
}
is(scalar(@{ $zk->children(leases('/linger')) }), 2, 'two linger');
$b1->query(set_limit('/linger', 1));
$zk->wait_for_children(leases('/linger'), 0);
is($b1->query(acquire('/linger', '0')), 't', 'lowered: the other server has the one that is left');
is($a1->query(acquire('/linger', '0')), 'f', 'and the first one has none');
$b1->query(release('/linger'));

# Local waiters would be handed the leases of others of their server, for the whole tenure.
$a1->query(set_limit('/hand', 3));
$_->query(acquire('/hand')) foreach $a1, $a2;
$a2->query(acquire('/hand'));
$a3->send(acquire('/hand'));
$node_a->wait_until(q{SELECT count(*) = 1 FROM zk_locks WHERE path = '/hand' AND claim = 'waiting'});
$b1->query(set_limit('/hand', 1));
$zk->wait_until(sub { $b1->query(q{SELECT zk_semaphore_limit('/hand')}) eq '1' }, 'the limit to be there');
$node_a->wait_until(q{SELECT bool_and(contended) FROM zk_locks WHERE path = '/hand' AND granted});
$a1->query(release('/hand'));
$zk->wait_until(sub { @{ $zk->children(leases('/hand')) } == 2 }, 'the lease not to be handed on');
waits($a3, 'two are held, and the limit is one');
$a2->query(release('/hand'));
$zk->wait_until(sub { @{ $zk->children(leases('/hand')) } <= 2 }, 'the next one not to be handed on');
waits($a3, 'one is held');
$a2->query(release('/hand'));
is($a3->answer, 't', 'none is held: the waiter has one');
$a3->query(release('/hand'));

# --- 0, and raised from 0, with the inner mutex in the hands of a waiter ---

$a1->query(set_limit('/zero', 0));
is($_->query(acquire('/zero', '0')), 'f', '0: no grant') foreach $a1, $b1;
wait_with_lease($node_b, $b1, '/zero');
$b2->send(acquire('/zero', '1h', 2));
$node_b->wait_for_waiter('/zero/locks', 1);
$a1->send(acquire('/zero'));
$node_a->wait_for_ticket('/zero/locks', 'queued');
$a2->query(set_limit('/zero', 1));
is($b1->answer, 't', 'raised to 1: the first waiter has it');
$b1->query(release('/zero'));
$node_b->wait_until(q{SELECT count(*) = 1 FROM zk_locks WHERE path = '/zero' AND claim = 'waiting'});
waits($b2, 'one is free: not enough for two');
waits($a1, 'and the third does not pass');
$a2->query(set_limit('/zero', 2));
is($b2->answer, 't', 'raised to 2: the one that wants two');
$b2->query(release('/zero', 2));
is($a1->answer, 't', 'then the third');
$a1->query(release('/zero'));

# --- a limit that another client has spoilt, deleted, or mended ---

foreach my $spoilt ("junk", "\0\0\0", "\0\0\0\0\1", "\x7f" x 40)
{
	my $path = '/spoilt' . length $spoilt;
	my $bytes = '"\\\\x' . unpack('H*', substr $spoilt, 0, 16) . '"' . (length $spoilt > 16 ? '\.\.\.' : '');
	$bytes = '' if $spoilt eq 'junk';			# four bytes are a number, whatever they mean
	$a1->query(set_limit($path, 1));
	$a1->query(acquire($path));
	wait_with_lease($node_b, $b1, $path);
	$zk->set(limit($path), $spoilt);
	if ($spoilt eq 'junk')
	{
		is($b1->answer, 't', 'four letters: a great number');
		$b1->query(release($path));
	}
	else
	{
		my $result = $b1->result;
		is($result->{errcode}, '22023', length($spoilt) . ' bytes: the waiter gets an error');
		like($result->{err}, qr/invalid limit of semaphore "$path".*Its znode holds $bytes instead of a number of four bytes/s, 'which says what stands there');
		$node_a->wait_until("SELECT bool_and(contended) FROM zk_locks WHERE path = '$path' AND granted");
		is($_->errcode(acquire($path, '0')), '22023', 'and so does a try on each server') foreach $a2, $b1;
		is($_->errcode("SELECT zk_semaphore_limit('$path')"), '22023', 'and a look') foreach $a2, $b1;
		is($a1->query(q{SELECT zk_lock_is_held('} . $path . q{')}), 't', 'what is held stays');
		is($a2->query("SELECT zk_semaphore_acquire('$path', 2, '0')"), 't', 'a call that names a number does not need it')
		  if $spoilt eq "\0\0\0" && $a1->query(release($path));
		$a2->query('SELECT zk_lock_release_all()');
		$a2->query(set_limit($path, 2));
		is($b1->query(acquire($path, '1min')), 't', 'mended');
	}
	$_->query('SELECT zk_lock_release_all()') foreach $a1, $b1;
}
$a1->query(set_limit('/negative', 1));
$zk->set(limit('/negative'), "\x7f\x7f\x7f\x7f");
is($a1->query(q{SELECT zk_semaphore_limit('/negative')}), 0x7f7f7f7f, 'the greatest numbers are there');

$a1->query(set_limit('/deleted', 1));
$a1->query(acquire('/deleted'));
wait_with_lease($node_b, $b1, '/deleted');
$zk->delete(limit('/deleted'));
my $result = $b1->result;
is($result->{errcode}, '22023', 'deleted: the waiter gets an error');
like($result->{err}, qr{semaphore "/deleted" has no limit}, 'which says so');
is($a1->query(q{SELECT zk_semaphore_limit('/deleted') IS NULL}), 't', 'and so does a look');
is($a1->query(release('/deleted')), 't', 'what was held was held');

# The znode may be the directory of another lock, which is empty or has a number of leases.
$a1->query(q{SELECT zk_lock_acquire('/above/limit'), zk_semaphore_acquire('/beside/limit', 7)});
foreach my $path ('/above', '/beside')
{
	is($b1->query("SELECT zk_semaphore_acquire('$path', 1, '0')"), 't', "$path/limit is another lock: a number works");
	is($b1->query(release($path)), 't', 'and is released');
	is($b1->errcode(acquire($path)), '22023', 'there is no limit');
}
$a1->query('SELECT zk_lock_release_all()');

# --- a call that names another number ---

$a1->query(set_limit('/named', 2));
is($a1->query(q{SELECT zk_semaphore_acquire('/named', 2, '0')}), 't', 'the same number');
is($b1->query(acquire('/named', '0')), 't', 'together with none');
$result = $b2->run(q{SELECT zk_semaphore_acquire('/named', 3, '0')});
is($result->{errcode}, 'ZK003', 'another one');
like($result->{err}, qr{semaphore "/named" has a limit of 2 leases, not 3}, 'is refused with both');

# The server looks at the limit again before it refuses the number.
$proxy->hold('replies');
$b2->query(q{SET lock_timeout = '200ms'});
is($b2->errcode(q{SELECT zk_semaphore_acquire('/named', 3, '0')}), '55P03', 'no reply to that look: lock_timeout ends the call');
$b2->query('RESET lock_timeout');
$proxy->pass;
$a2->send(q{SELECT zk_semaphore_acquire('/named', 2)});
$node_a->wait_until(q{SELECT count(*) = 1 FROM zk_locks WHERE path = '/named' AND claim = 'waiting'});
$b1->query(set_limit('/named', 5));
is($a2->result->{errcode}, 'ZK003', 'and so is a waiter when the limit changes');
$_->query('SELECT zk_lock_release_all()') foreach $a1, $b1;

# --- while a server is away ---

$a1->query(set_limit('/away', 1));
$a1->query(acquire('/away'));
wait_with_lease($node_b, $b1, '/away');
$proxy->hold('replies');
$a1->query(set_limit('/away', 2));
$proxy->cut;
is($b1->answer, 't', 'raised while the other server is away: it hears when it is back');
$proxy->hold('replies');
$a1->query(set_limit('/away', 0));
$proxy->cut;
$node_b->wait_until_connected;
$node_b->wait_until(q{SELECT bool_and(contended) FROM zk_locks WHERE path = '/away' AND granted});
$b1->query(release('/away'));
is($b1->query(acquire('/away', '0')), 'f', 'lowered meanwhile: no grant');
$a1->query(release('/away'));

# A worker that ends forgets its watch; the next one reads the limit anew.
$a1->query(set_limit('/worker', 1));
$a1->query(acquire('/worker'));
wait_with_lease($node_b, $b1, '/worker');
kill 'TERM', $node_b->worker_pid;
$a1->query(set_limit('/worker', 2));
is($b1->answer, 't', 'a new worker: it hears of the change');
kill 'TERM', $node_b->worker_pid;
$a1->query(set_limit('/worker', 1));
$node_b->wait_until(q{SELECT bool_and(contended) FROM zk_locks WHERE path = '/worker' AND granted});
$b1->query(release('/worker'));
is($b1->query(acquire('/worker', '0')), 'f', 'and of the next');
$a1->query(release('/worker'));

# --- what it costs ---

# One read for each list, and one watch as long as the server has leases.
sub reads { my ($node) = @_; return $node->safe_psql('postgres', 'SELECT reads FROM zk_stat'); }
sub watches { my ($path) = @_; my ($list) = $zk->cmd('wchp') =~ m{^\Q@{[ limit($path) ]}\E\n((?:\t.*\n)*)}m; return () = ($list // '') =~ /\n/g; }
$a1->query(set_limit('/cost', 3));
$a1->query(acquire('/cost'));
is(watches('/cost'), 1, 'a watch');
$a1->query($_) foreach release('/cost'), acquire('/cost'), release('/cost'), acquire('/cost');
# The first list may come late, and its read of the limit with it.
ok($zk->wait_until(sub {
		my $before = reads($node_a);
		$a1->query($_) foreach map { (release('/cost'), acquire('/cost')) } 1 .. 20;
		return reads($node_a) == $before; }, 'no read'), 'no read while a lease lingers');
$b1->query(acquire('/cost'));
is(watches('/cost'), 2, 'one for each server');
$b2->query(acquire('/cost'));
is(watches('/cost'), 2, 'whatever number of leases it has');
$node_b->set('zklock.linger', '0');
$_->query(release('/cost')) foreach $b1, $b2;
$zk->wait_for_children(leases('/cost'), 1);
$zk->wait_until(sub { watches('/cost') == 1 }, 'the watch to go with the last lease');
is(watches('/cost'), 1, 'without a lease there is none');
$a1->query('SELECT zk_lock_release_all()');

# Without a stored limit, no watch is left either.
$b1->query(q{SELECT zk_semaphore_acquire('/cost/named', 3)});
is(watches('/cost/named'), 0, 'no watch where nothing is stored');
$b1->query(release('/cost/named'));

$_->quit foreach $a1, $a2, $a3, $b1, $b2;
foreach my $node ($node_a, $node_b)
{
	$node->stop;
	unlike(slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal/, $node->name . ': a quiet log');
}
done_testing();
