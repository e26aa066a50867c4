
# A ZooKeeper quota that is used up: the error says so, and names the path; the log has ZooKeeper's
# number and the znode.

use strict;
use warnings;

use ZklockTest;

my $zk = ZooKeeper->new(java_opts => '-Dzookeeper.enforceQuota=true');
my $node = ZklockNode->started('node', $zk, 'zklock.linger' => '0');
my $backend = $node->backend;

# A znode of another client uses up the quota of the directory in which the lock's directory would be.
sub limit_children
{
	my ($path) = @_;
	$zk->create("$path/other", data => '');
	$zk->create("/zookeeper/quota$path/zookeeper_limits", data => 'count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=2');
	$zk->create("/zookeeper/quota$path/zookeeper_stats", data => 'count=2,bytes=0');
	return;
}

# What each of these says, and the log.
sub is_refused
{
	my ($sql, $path, $name) = @_;
	my $offset = -s $node->logfile;
	my $result = $backend->run($sql);
	is($result->{errcode}, '53400', "$name: the SQLSTATE");
	like($result->{err}, qr/ERROR: .*"\Q$path\E".*\n.*DETAIL:  A quota in ZooKeeper is used up\./s, '... and the message');
	$node->wait_for_log(qr/ZooKeeper refused a request for "[^"]*": quota exceeded \(error -125\)/, $offset);
	return;
}

is($backend->query(q{SELECT zk_lock_acquire('/free/lock')}), 't', 'without a quota');
limit_children('/zklock/full');
is_refused(q{SELECT zk_lock_acquire('/full/lock')}, '/full/lock', 'a lock');
is_refused(q{SELECT zk_semaphore_acquire('/full/leases', 2)}, '/full/leases', 'a semaphore');
is_refused(q{SELECT zk_multilock_acquire('{/free/a, /full/b}')}, '/full/b', 'a multilock');
is($backend->query(q{SELECT count(*) FROM zk_locks WHERE path LIKE '/full%' AND pid IS NOT NULL}), 0, 'nothing is left of them');
is($backend->query(q{SELECT zk_lock_acquire('/free/other')}), 't', 'other locks are free');

# The record of leaders.  The server says why it does not lead, instead of writing again and again.
sub stand { my ($path) = @_; $node->set($_, $path) foreach 'zklock.leader_of', 'zklock.commit_requires'; return; }
my $leaders = '/zklock/.zklock/leaders';
stand('/leaders/first');
$node->wait_until(q{SELECT zk_is_leader('/leaders/first')});
limit_children($leaders);
my $offset = -s $node->logfile;
stand('/leaders/second');
$node->wait_for_log(qr/this server must not lead "\/leaders\/second"\n.*A quota in ZooKeeper is used up/, $offset);
$node->wait_until(q{SELECT refused_leaderships ~ '^/leaders/second: A quota in ZooKeeper is used up' FROM zk_status});
pass('a leadership: zk_status says why it is refused');
is($backend->errcode('CREATE TABLE t ()'), '25006', 'and nothing is written');
$zk->set("/zookeeper/quota$leaders/zookeeper_limits", 'count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=9');
$node->wait_until(q{SELECT zk_is_leader('/leaders/second')});
is($backend->errcode('CREATE TABLE t ()'), '', 'with a greater quota, it leads');

# The records of jobs, and what is stored.
$backend->query(q{SELECT zk_run_once('/free/first', '2026-01-01 02:00+00'), zk_lock_release('/free/first')});
limit_children('/zklock/.zklock/jobs');
is_refused(q{SELECT zk_run_once('/free/second', '2026-01-01 02:00+00')}, '/free/second', 'a job');
is_refused(q{SELECT zk_semaphore_set_limit('/full/stored', 3)}, '/full/stored', 'a stored limit');

done_testing();
