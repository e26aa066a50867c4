
# The commit guard and the end of a backend, at moments at which a backend has to wait
# where it seldom does: for a partition of the lock table, and for a catalog.  Needs servers
# with fault points (make FAULTS=1).

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time);

use PostgreSQL::Test::Utils;

use ZklockNode;
use ZooKeeper;

$ENV{TEMP_CONFIG} = $ENV{FAULTS_CONFIG} // die 'no build with fault points: use test/run tap';
my $zk = ZooKeeper->new;
my $node_a = ZklockNode->started('a', $zk, 'zklock.session_timeout' => '4s', 'zklock.linger' => 0);
my $node_b = ZklockNode->started('b', $zk, 'zklock.session_timeout' => '20s');
my ($holder, $stopper, $watcher) = map { $node_a->backend } 1 .. 3;
my ($judge, $stopper_b) = map { $node_b->backend } 1 .. 2;
$watcher->query('CREATE TABLE work (v text)');

# So many paths in this partition of the lock table, of 16.
sub paths_in
{
	my ($partition, $n) = @_;
	return split /\n/, $watcher->query(
		"SELECT '/x' || g FROM generate_series(1, 1000) g WHERE (hashtext('/x' || g) & 15) = $partition LIMIT $n");
}

# A backend stands still with the lock of this path's partition; returns its process.
sub stand_still
{
	my ($node, $backend, $path) = @_;
	my $at = -s $node->logfile;
	my $process;
	symlink 'stop', $node->data_dir . '/zklock.fault.hold-begun' or die "symlink: $!";
	$backend->send("SELECT zk_lock_acquire('$path')");
	$zk->wait_until(
		sub { ($process) = slurp_file($node->logfile, $at) =~ /fault point "hold-begun": process (\d+) shall stop\n/; return $process; },
		'a backend to get to hold-begun');
	wait_until_still($process);
	return $process;
}

sub wait_until_still
{
	my ($process) = @_;
	return $zk->wait_until(sub { slurp_file("/proc/$process/stat") =~ /^\d+ \(.*\) T / }, "process $process to stand still");
}

# --- the guard waits for a partition until the session has expired ---

# (A path of the same partition; the worker is held up there, too.)
my ($path, $other) = paths_in(5, 2);
$holder->query('BEGIN');
is($holder->query("SELECT zk_xact_lock_acquire('$path')"), 't', 'late guard: held');
$holder->query(q{INSERT INTO work VALUES ('late')});
my $process = stand_still($node_a, $stopper, $other);
$holder->send('COMMIT');
is($judge->query("SELECT zk_lock_acquire('$path', '1min')"), 't', 'late guard: another server has the lock');
ok(!$holder->is_done, 'late guard: the guard still waits');
kill 'CONT', $process;
is($holder->result->{errcode}, 'ZK001', 'late guard: no commit');
$stopper->result;
$node_a->wait_until_connected;
$stopper->query('SELECT zk_lock_release_all()');
is($judge->query("SELECT zk_lock_release('$path')"), 't', 'late guard: the other one had it all the time');
is($watcher->query(q{SELECT count(*) FROM work WHERE v = 'late'}), '0', 'late guard: nothing was written');

# --- it waits between two claims until the first one has ended ---

# (The session lives on.  The guard looks at claims in the order of the backend's hash table,
# which is that of the partitions; so some of these claims come before the one that it waits
# for, and some behind.  The worker stands still before it counts the losses, so only the
# guard's clock tells of them.)
$node_b->safe_psql('postgres', 'CREATE TABLE work (v text)');
my ($stop, @stuck) = paths_in(9, 9);
my @ending = (paths_in(3, 4), paths_in(15, 4));
my @holders = map { $node_b->backend } @stuck;
foreach my $i (0 .. $#holders)
{
	$holders[$i]->query('BEGIN');
	$holders[$i]->query("SELECT zk_xact_lock_acquire('$stuck[$i]')");
	$holders[$i]->query("SELECT zk_xact_lock_acquire('$ending[$i]', NULL, '3 s')");
	$holders[$i]->query("INSERT INTO work VALUES ('between')");
}
my $granted = time;
$process = stand_still($node_b, $stopper_b, $stop);
my $worker = $node_b->worker_pid;
symlink 'stop', $node_b->data_dir . '/zklock.fault.timer-fired' or die "symlink: $!";
$_->send('COMMIT') foreach @holders;
$zk->wait_until(sub { time > $granted + 3 }, 'the lease times to be over');
kill 'CONT', $process;
is_deeply([ map { $_->result->{errcode} } @holders ], [ ('ZK002') x @holders ],
	'between claims: no commit whose lease time was over');
wait_until_still($worker);
kill 'CONT', $worker;
is($node_b->safe_psql('postgres', 'SELECT count(*) FROM work'), '0', 'between claims: nothing was written');
$stopper_b->result;
$_->quit foreach @holders, $stopper_b;

# --- a backend is terminated while it reads the catalogs for its claim ---

# What is left of an earlier claim in this backend's memory is another backend's by now; a
# fresh backend has nothing there at all.
$node_a->wait_until_connected;
foreach my $fresh (0, 1)
{
	my $label = $fresh ? 'fresh backend' : 'terminated backend';
	my $victim = $node_a->backend;
	if (!$fresh)
	{
		$victim->query(q{SELECT zk_lock_acquire('/first')});
		$victim->query(q{SELECT zk_lock_release('/first')});
	}
	$holder->query('BEGIN');
	is($holder->query(q{SELECT zk_xact_lock_acquire('/held')}), 't', "$label: another one holds a lock");
	$victim->query(q{SET application_name = 'other'});
	my $pid = $victim->pid;
	$watcher->query('ALTER DATABASE postgres CONNECTION LIMIT ' . (90 + $fresh));
	$watcher->query('BEGIN');
	$watcher->query('LOCK TABLE pg_database IN ACCESS EXCLUSIVE MODE');
	$victim->send(q{SELECT zk_lock_acquire('/second')});
	$watcher->wait_until("SELECT count(*) = 1 FROM pg_locks WHERE NOT granted AND pid = $pid");
	$watcher->query("SELECT pg_terminate_backend($pid)");
	$victim->result;
	$watcher->query('ROLLBACK');
	$watcher->wait_until("SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid");
	is($holder->query(q{SELECT zk_lock_is_held('/held')}), 't', "$label: the other one still holds it");
	is($judge->query(q{SELECT zk_lock_acquire('/held', '0')}), 'f', "$label: so no other server gets it");
	is($watcher->query(q{SELECT count(*) FROM zk_locks WHERE path = '/held' AND claim = 'held'}), '1', "$label: and it is shown");
	is($holder->errcode('COMMIT'), '', "$label: commit");
}

$_->quit foreach $holder, $stopper, $watcher, $judge;
$_->stop foreach $node_a, $node_b;
done_testing();
