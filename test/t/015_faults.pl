
# Faults of doc/guarantees.md that no other test plays: a machine that sleeps, and znodes that may
# not be deleted.  Also a fence on a server without a worker and without ZooKeeper.

use strict;
use warnings;

use ZklockTest;

my $zk = ZooKeeper->new;
my %settings = ('zklock.linger' => 0);
my $node_a = ZklockNode->started('a', $zk, %settings, 'zklock.session_timeout' => '6s');
my $node_b = ZklockNode->started('b', $zk, %settings);
my ($a1, $a2, $b1) = map { $_->backend } $node_a, $node_a, $node_b;
$node_a->safe_psql('postgres', 'CREATE TABLE t (v text)');

# --- the machine sleeps ---

sub all_of_a
{
	my %children = $node_a->children;
	return ($node_a->{_pid}, keys %children);
}

$a1->query(acquire('/sleep'));
my $token = $a1->query(token('/sleep'));
$a2->query(q{BEGIN; SELECT zk_xact_lock_acquire('/sleep2'); INSERT INTO t VALUES ('asleep')});
my @all = all_of_a();
kill 'STOP', @all;
is($b1->query(acquire('/sleep', '1min')), 't', 'asleep: others have the lock on expiry');
cmp_ok($b1->query(token('/sleep')), '>', $token, 'asleep: with a greater token');
$a2->send('COMMIT');
kill 'CONT', @all;
is($a2->result->{errcode}, 'ZK001', 'awake: the first that it does is refused');
# The notice of the loss may cancel a statement, so let it cancel one that does not matter.
$node_a->wait_until(q{SELECT bool_and(claim = 'lost') FROM zk_locks WHERE path = '/sleep'});
$a1->run('SELECT 1');
is($a1->query(held('/sleep')), 'f', 'awake: the lock is not held');
is($node_a->safe_psql('postgres', 'SELECT count(*) FROM t'), '0', 'awake: nothing is there');
$_->run('SELECT zk_lock_release_all()') foreach $a1, $b1;

# The releases that follow do not wait for the expiry of a session.
$node_a->set('zklock.session_timeout', '30s');
$node_a->expire_session($zk, by_hand => 1);

# --- znodes may not be deleted ---

$zk->create('/zklock/kept', perms => 'rcwa');
is($a1->query(acquire('/kept')), 't', 'deleting is forbidden: acquired');
my $at = -s $node_a->logfile;
is($a1->query(release('/kept')), 't', 'deleting is forbidden: released');
$node_a->wait_for_log(qr/could not delete the znode of lock "\/kept": it stays until/, $at);
$b1->send(acquire('/kept'));
$node_b->wait_for_ticket('/kept', 'queued');
$node_a->expire_session($zk, by_hand => 1);
is($b1->answer, 't', 'deleting is forbidden: until the session ends');
$b1->query(q{SELECT zk_lock_release_all()});

# The server remembers such a znode, counts it, and makes no second one.
$zk->create("/zklock/$_", perms => 'rcwa') foreach qw(kept2 kept3 kept3/leases);
sub keeps
{
	my ($path, $n, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(scalar(@{ $zk->children($path) }), $n, "$what: znodes");
	is($node_a->safe_psql('postgres', 'SELECT ephemeral_bytes > 0 FROM zk_status'), $n ? 't' : 'f', "$what: counted");
	return;
}
$node_a->wait_until_connected;
is($a1->query(try('/kept2')), 't', 'kept: acquired');
is($a1->query(release('/kept2')), 't', 'kept: released');
foreach my $sql (q{zk_lock_acquire('/kept2', '0')}, q{zk_lock_acquire('/kept2')}, q{zk_write_lock_acquire('/kept2', '1min')})
{
	my $result = $a1->run("SELECT $sql");
	is($result->{errcode}, '28000', "kept: not again: $sql");
	like($result->{err}, qr/permission denied by ZooKeeper for lock "\/kept2".*could not be deleted/s, 'kept: and says why');
}
$a1->run('SET zklock.synchronous_release = on');
is($a1->query(q{SELECT zk_semaphore_acquire('/kept3', 3)}), 't', 'kept: a lease');
is($a1->query(q{SELECT zk_semaphore_release('/kept3')}), 't', 'kept: released, without waiting for a delete that cannot be');
$a1->run('SET zklock.synchronous_release = off');
is($a1->errcode(q{SELECT zk_semaphore_acquire('/kept3', 3, $$0$$)}), '28000', 'kept: no other lease');
is($a1->errcode(q{SELECT zk_semaphore_acquire('/kept3', 3, $$1min$$, 2)}), '28000', 'kept: nor two');
keeps('/zklock/kept2', 1, 'kept');
keeps('/zklock/kept3/leases', 1, 'kept');

# ... nor does the next worker.
my $worker = $node_a->status('worker_pid');
$node_a->safe_psql('postgres', 'SELECT pg_terminate_backend(worker_pid) FROM zk_status');
$node_a->wait_until("SELECT worker_pid <> $worker AND state IN ('connected', 'idle') AND safe FROM zk_status");
is($a1->errcode(try('/kept2')), '28000', 'kept: not with another worker');
keeps('/zklock/kept2', 1, 'kept, another worker');

# When the server is asked again and may delete the znode, it does.
$zk->allow("/zklock/$_", 'rcdwa') foreach qw(kept2 kept3/leases);
is($a1->query(acquire('/kept2', '1min')), 't', 'kept: allowed again');
is($a1->query(release('/kept2')), 't', 'kept: released');
is($a1->query(q{SELECT zk_semaphore_acquire('/kept3', 3, '1min', 3)}), 't', 'kept: leases are allowed again');
is($a1->query(q{SELECT zk_semaphore_release('/kept3', 3)}), 't', 'kept: released');
$node_a->wait_until('SELECT entries = 0 AND ephemeral_bytes = 0 FROM zk_status');
keeps($_, 0, 'kept, and gone') foreach '/zklock/kept2', '/zklock/kept3/leases';

$_->quit foreach $a1, $a2, $b1;

# --- a fence without a worker ---

$node_b->stop;
$node_b->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$node_b->start;
is($node_b->errcode(acquire('/x')), '55000', 'not preloaded: no locks');
is($node_b->errcode(q{SELECT zk_fence('x', 2)}), '', 'not preloaded: but a fence');
is($node_b->errcode(q{SELECT zk_fence('x', 1)}), 'ZK001', 'not preloaded: which fences');
$_->stop foreach $node_a, $node_b;

done_testing();
