
# The mutex together with services in Go: both directions, ends of all kinds, a connection that is cut,
# the commit guard beside it, and what the library's Lock leaves behind.

use strict;
use warnings;

use Contender;
use History;
use HoldingProxy;
use InteropPeer;
use ZklockTest;

plan skip_all => 'golang-go or the library go-zookeeper is not installed' unless InteropPeer->go_library;

my $zk = ZooKeeper->new;
my $proxy = HoldingProxy->new($zk->hosts);
my $go = InteropPeer->go($zk, session_timeout => 8, hosts => $proxy->address);
my %settings = ('zklock.tenure' => 0, 'zklock.linger' => 0, 'zklock.connection_timeout' => '1min');
my $node_a = ZklockNode->started('a', $zk, %settings);
my $node_b = ZklockNode->started('b', $zk, %settings);

sub zklock { my ($node) = @_; return Contender->zklock($node->backend, $node); }
sub go { my ($actor) = @_; return Contender->foreign($go->actor($actor), 'mutex'); }
sub queue { my ($path, $contender) = @_; return $contender->queue($zk, $path); }
sub wait_for_znodes { my ($path, $n) = @_; return $zk->wait_for_children("/zklock$path", $n); }

my ($a1, $b1, $g1, $g2) = (zklock($node_a), zklock($node_b), go('g1'), go('g2'));

# --- both directions ---

# Go makes a directory that stays, and zklock makes one that goes.
foreach my $path ('/of_go', '/of_zklock')
{
	$a1->release($path) if $path eq '/of_zklock' && $a1->acquire($path);
	is($g1->acquire($path), 't', "$path: Go holds");
	is($a1->try($path), 'f', 'a try of zklock');
	is($a1->acquire($path, 200), 'f', 'zklock with a timeout');
	wait_for_znodes($path, 1);
	queue($path, $a1);
	is($node_b->safe_psql('postgres', "SELECT string_agg(concat_ws(' ', client, mode, holds, waits_for_us), ', ' ORDER BY position) FROM zk_lock_queue('$path')"),
		'go-zookeeper lock t t, zklock lock f t', 'zk_lock_queue tells them apart');
	ok(!$a1->is_done, 'zklock waits');
	is($g1->release($path), 't', 'Go releases');
	is($a1->answer, 't', 'zklock has it');

	queue($path, $g1);
	queue($path, $b1);
	queue($path, $g2);
	ok(!$g1->is_done, 'Go waits');
	$node_a->wait_until_contended($path);
	$a1->release($path);
	is($g1->answer, 't', 'zklock releases: Go has it');
	ok(!$b1->is_done, 'and not the other server, which came later');
	$g1->release($path);
	is($b1->answer, 't', 'first come, first served');
	$node_b->wait_until_contended($path);
	$b1->release($path);
	is($g2->answer, 't', 'to the last');
	$g2->release($path);
	wait_for_znodes($path, 0);
}

# --- its lock is taken away ---

is($g1->acquire('/force'), 't', 'Go holds');
queue('/force', $a1);
is($node_b->safe_psql('postgres', q{SELECT zk_lock_force_release('/force')}), '1', 'its lock is released by force');
is($a1->answer, 't', 'zklock has it');
like($g1->party->run('release mutex /zklock/force')->{err}, qr/^zk: (node does not exist|not locked)/, 'Go learns it when it releases');
is($a1->party->query(q{SELECT zk_lock_is_held('/force')}), 't', 'and releases nothing');
$a1->release('/force');

# --- a connection that is cut ---

my $session = $g1->party->session;
is($g1->acquire('/cut1'), 't', 'Go holds');
is($b1->acquire('/cut2'), 't', 'zklock holds another lock');
queue('/cut1', $a1);
queue('/cut2', $g2);
$proxy->cut;
$g2->wait_until_watching($zk, (Contender::queue_of($zk, '/cut2'))[0]);
is($g1->party->session, $session, 'the session of Go goes on');
ok(!$a1->is_done && !$g2->is_done, 'and nothing changes hands');
$g1->release('/cut1');
is($a1->answer, 't', 'Go releases: zklock has it');
$node_b->wait_until_contended('/cut2');
$b1->release('/cut2');
is($g2->answer, 't', 'zklock releases: Go has it');
$a1->release('/cut1');
$g2->release('/cut2');

# --- the commit guard ---

$node_b->set_session_timeout($zk, '8s');
$b1->party->query('CREATE TABLE written (t text)');
$b1->party->query(q{BEGIN; SET LOCAL zklock.on_lost = notice; SELECT zk_xact_lock_acquire('/guard'); INSERT INTO written VALUES ('late')});
queue('/guard', $g1);
$node_b->expire_session($zk);
is($g1->answer, 't', 'the session of the server expires: Go has its lock');
is($b1->party->run('COMMIT')->{errcode}, 'ZK001', 'and the transaction cannot commit');
is($b1->party->query('SELECT count(*) FROM written'), '0', 'nothing was written');
$g1->release('/guard');

# --- what Lock leaves behind ---

# It takes the end of every child for a number, and gives up where it is none.
is($b1->acquire('/trap/below'), 't', 'zklock holds a lock below the path');
is($g1->party->run('acquire mutex /zklock/trap')->{errcode}, 'strconv.Atoi', 'Lock of the path fails');
is($b1->party->query(q{SELECT zk_write_lock_acquire('/trap_rw')}), 't', 'zklock holds a read-write lock');
is($b1->acquire('/trap_number/shard-0'), 't', 'zklock holds a lock with a number below a path');

# The library of Debian 12 looks for the number behind the last dash; the newer one behind "lock-" or "__".
my %child = ('/trap_rw' => $zk->children('/zklock/trap_rw')->[0], '/trap_number' => 'shard-0');
my ($fails, $waits) = InteropPeer::go_library() =~ /samuel/ ? ('/trap_rw', '/trap_number') : ('/trap_number', '/trap_rw');
is($g1->party->run("acquire mutex /zklock$fails")->{errcode}, 'strconv.Atoi', "Lock of $fails fails");
$g2->send_acquire($waits);
$g2->wait_until_watching($zk, "/zklock$waits/$child{$waits}");
ok(!$g2->is_done, 'Lock waits for it');
$g2->party->close;
is(scalar(grep { /lock-/ } @{ $zk->children('/zklock/trap') }), 1, 'Lock has left its znode behind');
is($a1->try('/trap'), 'f', 'which is in the way');
is($node_a->safe_psql('postgres', q{SELECT client, holds FROM zk_lock_queue('/trap')}), 'go-zookeeper|t', 'and seems to hold the lock');
$g1->party->close;
is($a1->acquire('/trap'), 't', 'until the client is closed');
$a1->release('/trap');
$b1->party->query('SELECT zk_lock_release_all()');
$g2 = go('g3');

# --- load ---

my $curator = InteropPeer->curator($zk, session_timeout => 8);
my $kazoo = InteropPeer->kazoo($zk, session_timeout => 8);
my $history = History->new;
my %kind = (a => 'zklock', b => 'zklock', g => 'Go', c => 'Curator', k => 'kazoo');
$history->hammer_sql($_, $_->name, q{SELECT zk_lock_acquire('/load')}, q{SELECT zk_lock_release('/load')}) foreach $node_a, $node_b;
$history->hammer($_, 'mutex', '/zklock/load') foreach $go->actor('g4'), $go->actor('g5'), $curator->actor('c1'), $kazoo->actor('k1');
$history->work_until(sub { $history->each_has(30) && $history->has_handovers(sub { $kind{ substr $_[0], 0, 1 } }, 'zklock', 'Go', 'Curator', 'kazoo') },
	'each to have the lock from each');
is_deeply([ $history->problems ], [], 'no two overlapped, and the counter is exact');
note $history->summary;

# --- kill -9 ---

is($b1->acquire('/killed'), 't', 'zklock holds');
queue('/killed', $g2);
$node_b->kill9_all;
is($g2->answer, 't', 'its server is killed: Go has it');
queue('/killed', $a1);
$session = $g2->party->session;
$go->kill9;
is($a1->answer, 't', 'Go is killed: zklock has it');
ok(!$zk->has_session($session), 'after the session of Go had expired');
$a1->release('/killed');
$node_a->wait_until('SELECT count(*) = 0 FROM zk_locks');
$a1->party->quit;
$node_a->stop;

done_testing();
