
# A process stops or fails at each step of the search for a deadlock, or the server is cut off
# there: a true deadlock has one victim in the end, and what is no deadlock any more has none.
# Needs servers with fault points (make FAULTS=1).

use strict;
use warnings;

use Test::More;

use PostgreSQL::Test::Utils;

use HoldingProxy;
use ZklockNode;
use ZooKeeper;

$ENV{TEMP_CONFIG} = $ENV{FAULTS_CONFIG} // die 'no build with fault points: use test/run tap';
my $zk = ZooKeeper->new;
my $proxy = HoldingProxy->new($zk->hosts);
my %settings = ('zklock.session_timeout' => '20s', 'zklock.linger' => 0, 'deadlock_timeout' => '100ms');
my $north = ZklockNode->started('north', undef, %settings, 'zklock.hosts' => $proxy->address, 'restart_after_crash' => 'on');
my $south = ZklockNode->started('south', $zk, %settings);
$north->safe_psql('postgres', 'CREATE TABLE accounts AS SELECT 1 AS id, 0 AS n');
my ($n1, $n2, $s1) = ($north->backend, $north->backend, $south->backend);
my $judge = $south->backend;

sub mutex { my ($path) = @_; return "SELECT zk_xact_lock_acquire('$path')"; }
sub arm { my ($point, $action) = @_; symlink $action, $north->data_dir . "/zklock.fault.$point" or die "symlink: $!"; return; }

# Wait until a process is at the point; returns it.
sub there
{
	my ($point, $at, $action) = @_;
	my $process;
	$zk->wait_until(
		sub { ($process) = slurp_file($north->logfile, $at) =~ /fault point "$point": process (\d+) shall $action\n/; return $process; },
		"a process to get to $point");
	$zk->wait_until(sub { slurp_file("/proc/$process/stat") =~ /^\d+ \(.*\) T / }, 'it to stand still')
	  if $action eq 'stop';
	return $process;
}

# The wait of n1 is the younger one, so north has the victim.
sub circle
{
	my ($point, $action) = @_;
	my $at = -s $north->logfile;
	$_->query('BEGIN') foreach $n1, $s1;
	$n1->query(mutex('/a'));
	$s1->query(mutex('/b'));
	$s1->send(mutex('/a'));
	$judge->wait_until(q{SELECT count(*) = 1 FROM zk_waits WHERE server = 'south'});
	arm($point, $action);
	$n1->send(mutex('/b'));
	return there($point, $at, $action);
}

# Both waits end, one of them as the victim.
sub is_broken
{
	my ($what) = @_;
	my @results = map { $_->result } $n1, $s1;
	is(join(' ', sort map { $_->{errcode} || $_->{out} } @results), '40P01 t', "$what: one wait is the victim, and the other one goes on");
	$_->query('ROLLBACK') foreach $n1, $s1;
	$zk->wait_for_children('/zklock/.zklock/waits', 0);
	return;
}

my @points = map { s/^zklock\.fault\.//r } qw(
	zklock.fault.waits-sent
	zklock.fault.waits-acknowledged
	zklock.fault.search-begun
	zklock.fault.search-answered
	zklock.fault.search-complete
	zklock.fault.case-begun
	zklock.fault.deadlock-proved);
my @points_of_backends = map { s/^zklock\.fault\.//r } qw(
	zklock.fault.wait-published
	zklock.fault.wait-sentenced);

foreach my $point (@points, @points_of_backends)
{
	my $process = circle($point, 'stop');
	ok(!$n1->is_done && !$s1->is_done, "$point, stop: both wait on");
	kill 'CONT', $process;
	is_broken("$point, stop");
}

# The worker starts again a second later.
foreach my $point (qw(waits-acknowledged search-answered case-begun deadlock-proved))
{
	circle($point, 'fail');
	is_broken("$point, fail");
}

foreach my $point (@points_of_backends)
{
	circle($point, 'fail');
	is($n1->result->{errcode}, 'XX000', "$point, fail: that ends the wait");
	$n1->query('ROLLBACK');
	is($s1->answer, 't', "$point, fail: and the other one goes on");
	$s1->query('COMMIT');
	$zk->wait_for_children('/zklock/.zklock/waits', 0);
}

# The connection is lost in the middle, with all replies.
foreach my $point (qw(waits-sent search-begun search-answered case-begun))
{
	my $process = circle($point, 'stop');
	$proxy->hold('replies');
	kill 'CONT', $process;
	$judge->query(q{SELECT pg_sleep(0.2)});
	ok(!$n1->is_done && !$s1->is_done, "$point, cut off: there is no victim meanwhile");
	$proxy->cut;
	is_broken("$point, cut off");
}

# The server that must confirm stands still, and the other wait ends: no victim.
my $worker = circle('case-begun', 'stop');
$south->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $s1->pid . ')');
is($s1->result->{errcode}, '57014', 'the wait of the other server is cancelled');
$s1->query('ROLLBACK');
kill 'CONT', $worker;
is($n1->answer, 't', 'so there is no victim');
$n1->query('COMMIT');

# The holder's local wait ends just before it would be cancelled: its next statement is not.
my $at = -s $north->logfile;
$_->query('BEGIN') foreach $n1, $n2, $s1;
$n1->query(mutex('/a'));
$n1->query('SAVEPOINT before');
$n2->query('SELECT n FROM accounts WHERE id = 1 FOR UPDATE');
$s1->query(mutex('/b'));
$s1->send(mutex('/a'));
$judge->wait_until(q{SELECT count(*) = 1 FROM zk_waits WHERE server = 'south'});
$n1->send('UPDATE accounts SET n = n + 1');
$north->wait_until('SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND pid = ' . $n1->pid . ')');
arm('wait-sentenced', 'stop');
$n2->send(mutex('/b'));
my $process = there('wait-sentenced', $at, 'stop');
is($process, $n2->pid, 'the backend that waits for the ticket is to cancel the holder');
$north->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $n1->pid . ')');
is($n1->result->{errcode}, '57014', "the holder's wait is cancelled by hand");
$n1->query('ROLLBACK TO before');
$n1->send('SELECT 1 FROM pg_sleep(0.5)');
kill 'CONT', $process;
is($n1->answer, '1', 'its next statement is left alone');
$n1->query('COMMIT');
is($s1->answer, 't', 'and all go on');
$s1->query('COMMIT');
is($n2->answer, 't', 'one after the other');
$n2->query('COMMIT');

# A server that crashes with a published wait leaves nothing behind.
circle('search-complete', 'die');
is($s1->answer, 't', 'a crash ends the circle');
$s1->query('COMMIT');
$zk->wait_for_children('/zklock/.zklock/waits', 0);
pass('and nothing is left');

done_testing();
