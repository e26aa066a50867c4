
# Faults of doc/guarantees.md that no other test plays: a machine that sleeps, znodes
# that may not be deleted.  And a fence where there is neither
# worker nor ZooKeeper.

use strict;
use warnings;

use Test::More;

use PostgreSQL::Test::Utils;

use ZklockNode;
use ZooKeeper;

my $zk = ZooKeeper->new;
my %settings = ('zklock.session_timeout' => '4s', 'zklock.linger' => 0);
my $node_a = ZklockNode->started('a', $zk, %settings);
my $node_b = ZklockNode->started('b', $zk, %settings);
my ($a1, $a2, $b1) = map { $_->backend } $node_a, $node_a, $node_b;
$node_a->safe_psql('postgres', 'CREATE TABLE t (v text)');

# --- the machine sleeps ---

sub all_of_a
{
	my %children = $node_a->children;
	return ($node_a->{_pid}, keys %children);
}

$a1->query(q{SELECT zk_lock_acquire('/sleep')});
my $token = $a1->query(q{SELECT zk_lock_token('/sleep')});
$a2->query(q{BEGIN; SELECT zk_xact_lock_acquire('/sleep2'); INSERT INTO t VALUES ('asleep')});
my @all = all_of_a();
kill 'STOP', @all;
is($b1->query(q{SELECT zk_lock_acquire('/sleep', '1min')}), 't', 'asleep: others have the lock on expiry');
cmp_ok($b1->query(q{SELECT zk_lock_token('/sleep')}), '>', $token, 'asleep: with a greater token');
$a2->send('COMMIT');
kill 'CONT', @all;
is($a2->result->{errcode}, 'ZK001', 'awake: the first that it does is refused');
is($a1->query(q{SELECT zk_lock_is_held('/sleep')}), 'f', 'awake: the lock is not held');
is($node_a->safe_psql('postgres', 'SELECT count(*) FROM t'), '0', 'awake: nothing is there');
$_->run('SELECT zk_lock_release_all()') foreach $a1, $b1;
$node_a->wait_until_connected;

# --- znodes may not be deleted ---

$zk->create('/zklock/kept', perms => 'rcwa');
is($a1->query(q{SELECT zk_lock_acquire('/kept')}), 't', 'deleting is forbidden: acquired');
my $at = -s $node_a->logfile;
is($a1->query(q{SELECT zk_lock_release('/kept')}), 't', 'deleting is forbidden: released');
$node_a->wait_for_log(qr/could not delete the znode of lock "\/kept": it stays until/, $at);
$b1->send(q{SELECT zk_lock_acquire('/kept')});
$node_b->wait_for_ticket('/kept', 'queued');
$node_a->expire_session($zk, by_hand => 1);
is($b1->answer, 't', 'deleting is forbidden: until the session ends');
$b1->query(q{SELECT zk_lock_release_all()});

$_->quit foreach $a1, $a2, $b1;

# --- a fence without a worker ---

$node_b->stop;
$node_b->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$node_b->start;
is($node_b->errcode(q{SELECT zk_lock_acquire('/x')}), '55000', 'not preloaded: no locks');
is($node_b->errcode(q{SELECT zk_fence('x', 2)}), '', 'not preloaded: but a fence');
is($node_b->errcode(q{SELECT zk_fence('x', 1)}), 'ZK001', 'not preloaded: which fences');
$_->stop foreach $node_a, $node_b;

done_testing();
