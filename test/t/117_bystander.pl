
# One role's bulk work does not stand before another role's first request.  While ZooKeeper stands
# still, bulk work fills the worker's queue, and then another role, the bystander, wants a lock.
# ZooKeeper numbers all writes, so the numbers of the bystander's tickets tell how many writes came
# in between.

use strict;
use warnings;

use ZklockTest;

# The bulk writes that may be on their way, the bystander's own writes, heartbeats.
my $few = 16 + 24;

my $zk = ZooKeeper->new;
my $node = ZklockNode->started('n', $zk,
	'zklock.session_timeout' => '60s',
	'zklock.connection_timeout' => '2min',
	'zklock.linger' => 0,
	'max_connections' => 100,
	'max_locks_per_transaction' => 256);
$node->safe_psql('postgres', 'CREATE ROLE abuser LOGIN; CREATE ROLE bystander LOGIN');
my $abuser = $node->backend(extra_params => [ '-U', 'abuser' ]);
my $bystander = $node->backend(extra_params => [ '-U', 'bystander' ]);
my $n = 0;

sub czxid { return $bystander->query("SELECT zk_lock_token('$_[0]') / 65536"); }

# The worker has sent everything that it can send without an answer.
sub wait_until_quiet
{
	my ($before, $now) = (-1, $node->status('requests'));
	until ($now == $before)
	{
		$node->safe_psql('postgres', 'SELECT pg_sleep(0.05)');
		($before, $now) = ($now, $node->status('requests'));
	}
	return $now;
}

sub check
{
	my ($what, $prepare, $work, $is_queued, $bound) = @_;
	$n++;
	my @path = ("/bystander/before/$n", "/bystander/after/$n");
	$node->wait_until(q{SELECT count(*) = 0 FROM zk_locks WHERE path LIKE '/bulk/%'});
	$abuser->query($prepare);
	$bystander->query("SELECT zk_lock_acquire('$path[0]')");
	wait_until_quiet();
	$zk->pause;
	$abuser->send($work);
	$node->wait_until($is_queued);
	wait_until_quiet();
	$bystander->send("SELECT zk_lock_acquire('$path[1]')");
	$node->wait_for_waiter($path[1], 1);
	$zk->resume;
	is($bystander->answer, 't', "$what: another role has its lock");
	my $between = czxid($path[1]) - czxid($path[0]);
	cmp_ok($between, '<=', $bound, "$what: $between writes came before");
	is($abuser->result->{errcode}, '', "$what: is done as well");
	$abuser->query('ROLLBACK; SELECT zk_lock_release_all()');
	return;
}

# The directories are made before anything is counted.
$bystander->query("SELECT zk_lock_acquire('/bystander/$_/0')") foreach 'before', 'after';

my $many = 900;
sub tickets { my ($state, $number) = @_; return "SELECT count(*) >= $number FROM zk_locks WHERE path LIKE '/bulk/%' AND ticket = '$state'"; }

check('leases', q{SELECT zk_semaphore_acquire('/bulk/leases', 1000)},
	"SELECT zk_semaphore_acquire('/bulk/leases', 1000, '0', $many)", tickets('wanted', $many), $few);
check('a multilock', 'SELECT 1',
	"SELECT zk_multilock_acquire(array_agg('/bulk/multi/' || i)) FROM generate_series(1, $many) AS i", tickets('wanted', $many), $few);
check('releases', "SELECT count(zk_lock_acquire('/bulk/release/' || i)) FROM generate_series(1, $many) AS i",
	'SELECT zk_lock_release_all()', tickets('releasing', $many), $few);
check('releases of leases', "SELECT zk_semaphore_acquire('/bulk/leases', 1000, '1min', $many)",
	'SELECT zk_lock_release_all()', 'SELECT NOT EXISTS (SELECT FROM zk_locks WHERE granted AND path LIKE \'/bulk/%\')', $few);
check('queues to be read', "SELECT zk_semaphore_acquire('/bulk/leases', 1000, '1min', $many)",
	"SELECT count(*) FROM zk_lock_queue('/bulk/leases')", "SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = " . $abuser->pid, $few);

# When runs of jobs end, the worker writes their records before all else; so their number is
# limited.
my $run = q{SELECT count(*) FROM generate_series(1, %d) AS i WHERE zk_xact_run_once('/bulk/job/' || i)};
is($abuser->errcode('BEGIN; ' . sprintf($run, 65)), '53400', 'a session has at most 64 runs of jobs at a time');
$abuser->query('ROLLBACK');
check('runs of jobs', 'BEGIN; ' . sprintf("SELECT count(*) FROM generate_series(1, %d) AS i WHERE zk_xact_run_once('/bulk/other/' || i)", 64),
	'ROLLBACK', tickets('releasing', 64), $few + 64);

# The limits of one call.
my $deep = join '', map { "/d$_" } 1 .. 15;
is($abuser->query("SELECT zk_lock_acquire('/bulk$deep')"), 't', 'a path of 16 components');
is($abuser->errcode("SELECT zk_lock_acquire('/bulk$deep/d16')"), '22023', 'not of 17');
is($abuser->errcode(q{SELECT zk_semaphore_acquire('/bulk/s', 2000, '1min', 1001)}), '54000', 'not more than 1,000 leases in one call');
is($abuser->errcode(q{SELECT zk_multilock_acquire(array_agg('/bulk/' || i)) FROM generate_series(1, 1001) AS i}), '54000', 'not more than 1,000 paths');
is($abuser->errcode(q{SELECT zk_lock_acquire('/bulk/' || i) FROM generate_series(1, 1001) AS i}), '53400', 'not more than 1,000 locks in one session');
$abuser->query('SELECT zk_lock_release_all()');

$node->set('zklock.max_jobs', 129);
is($abuser->errcode(q{SELECT zk_run_once('/bulk/last/' || i) FROM generate_series(1, 20) AS i}), '53400', 'not more jobs than zklock.max_jobs');

$_->quit foreach $abuser, $bystander;
$node->stop;
done_testing();
