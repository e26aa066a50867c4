
# zklock-run --once: a command that runs once for each tick of a job.

use strict;
use warnings;

use File::Basename qw(dirname);
use FindBin;
use IPC::Run;
use Text::ParseWords qw(shellwords);

use ZklockTest;

chomp(my $bindir = `pg_config --bindir`);
my $program = dirname($ENV{TEMP_CONFIG}) . "/stage$bindir/zklock-run";
my $zk = ZooKeeper->new;
my @nodes = map { ZklockNode->started($_, $zk, 'zklock.linger' => 0) } qw(a b);

my @before;

# zklock-run on this server: exit status, a space, and what it printed.
sub run_on
{
	my ($node, @args) = @_;
	local %ENV = (%ENV, PGHOST => $node->host, PGPORT => $node->port, PGDATABASE => 'postgres', PGUSER => 'postgres');
	IPC::Run::run([ @before, $program, @args ], '<', \'', '>', \my $out, '2>', \my $err);
	like($err, qr/zklock-run: error: /, "@args: says why") if ($? >> 8) == 69;
	return ($? >> 8) . " $out";
}

# What the record of the job says, once the run's end is in it.
sub record_is
{
	my ($path, $expected, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok($nodes[1]->poll_query_until('postgres',
			"SELECT state || ' ' || attempt FROM zk_jobs WHERE path = '$path'", $expected), $what);
}

my ($first, $second, $third) = map { "2024-05-01 02:0$_:00+00" } 0 .. 2;

is(run_on($nodes[0], "--once=$first", '/jobs/a', 'echo', 'ran'), "0 ran\n", 'a tick: runs');
record_is('/jobs/a', 'done 1', 'a tick: done');
foreach my $node (@nodes)
{
	is(run_on($node, "--once=$first", '/jobs/a', 'echo', 'ran'), '75 ', 'the same tick on ' . $node->name . ': does not run');
	is(run_on($node, "--once=$first", '--retry', '/jobs/a', 'echo', 'ran'), '75 ', 'nor with --retry, since it is done');
}
is(run_on($nodes[1], "--once=$second", '-E', '0', '/jobs/a', 'sh', '-c', 'exit 3'), '3 ', 'the next tick: runs, and fails');
record_is('/jobs/a', 'failed 1', 'the next tick: failed');
is(run_on($nodes[0], "--once=$second", '-E', '0', '/jobs/a', 'echo', 'ran'), '0 ', 'a failed tick: does not run');
is(run_on($nodes[0], "--once=$second", '--retry', '/jobs/a', 'echo', 'ran'), "0 ran\n", 'a failed tick: runs with --retry');
record_is('/jobs/a', 'done 2', 'a failed tick: then it is done');

# A command that does not exist leaves the tick to other servers.
is(run_on($nodes[0], "--once=$first", '/jobs/none', '/nowhere/to/be/found'), '127 ', 'no command');
is(run_on($nodes[1], "--once=$first", '/jobs/none', 'echo', 'ran'), "0 ran\n", 'no command: the tick is not used up');

# A closed standard error does not become the connection to the server, which would get the warning.
@before = ('sh', '-c', 'exec "$0" "$@" 2>&-');
is(run_on($nodes[0], '-g', "--once=$first", '/jobs/closed', 'true'), '0 ', 'standard error is closed');
record_is('/jobs/closed', 'done 1', 'standard error is closed: done');
@before = ();

# The server refuses the end of the run.
$nodes[0]->safe_psql('postgres', 'REVOKE EXECUTE ON FUNCTION zk_lock_release(text) FROM PUBLIC; GRANT EXECUTE ON FUNCTION zk_lock_release(text) TO postgres');
$nodes[0]->safe_psql('postgres', 'CREATE ROLE runner LOGIN');
like(run_on($nodes[0], '-d', 'user=runner', "--once=$first", '/jobs/unreleased', 'echo', 'ran'), qr/^79 ran/, 'the run was not released: the exit status tells');
record_is('/jobs/unreleased', 'failed 1', 'the run was not released: failed');
$nodes[0]->safe_psql('postgres', 'GRANT EXECUTE ON FUNCTION zk_lock_release(text) TO PUBLIC');

# While the command runs, no transaction stays open, and a query that fails is repeated.
{
	my $end = PostgreSQL::Test::Utils::tempdir() . '/end';
	my $log = -s $nodes[0]->logfile;
	$nodes[0]->safe_psql('postgres', 'CREATE ROLE asker LOGIN');
	my $long = IPC::Run::start([ $program, '-d', $nodes[0]->connstr('postgres') . ' user=asker', "--once=$first", '/jobs/long',
			'sh', '-c', "until test -e $end; do sleep 0.1; done" ]);
	$nodes[0]->wait_until(q{SELECT count(*) = 1 FROM zk_locks WHERE path = '/jobs/long' AND granted});
	$nodes[0]->wait_until(q{SELECT count(*) = 1 FROM pg_stat_activity WHERE usename = 'asker' AND state = 'idle' AND query LIKE '%zk_sessions%'});
	$nodes[0]->safe_psql('postgres', 'REVOKE EXECUTE ON FUNCTION zk_sessions() FROM PUBLIC');
	$nodes[0]->wait_for_log(qr/permission denied for function zk_sessions/, $log);
	$nodes[0]->safe_psql('postgres', 'GRANT EXECUTE ON FUNCTION zk_sessions() TO PUBLIC');
	my $asked = $nodes[0]->safe_psql('postgres', q{SELECT query_start FROM pg_stat_activity WHERE usename = 'asker'});
	$nodes[0]->wait_until("SELECT query_start > '$asked' AND query LIKE '%zk_sessions%' FROM pg_stat_activity WHERE usename = 'asker'");
	append_to_file($end, '');
	ok($long->finish, 'a query that fails does no harm');
}
record_is('/jobs/long', 'done 1', 'the run is done all the same');

# Timers that are late by minutes: ticks within the spacing are one run.
is(run_on($nodes[0], "--once=$first", '--spacing=1 hour', '/jobs/late', 'echo', 'ran'), "0 ran\n", 'spacing: runs');
is(run_on($nodes[1], "--once=$third", '--spacing=1 hour', '/jobs/late', 'echo', 'ran'), '75 ', 'spacing: a later tick within it does not run');
is(run_on($nodes[1], "--once=$third", '--spacing=1 min', '/jobs/late', 'echo', 'ran'), "0 ran\n", 'spacing: one beyond it does');
$nodes[1]->wait_until_clean('/jobs/late');
is(run_on($nodes[0], '--once=now', '--spacing=1 hour', '/jobs/late', 'echo', 'ran'), "0 ran\n", 'spacing: now');
is(run_on($nodes[1], '--once=now', '--spacing=1 hour', '/jobs/late', 'echo', 'ran'), '75 ', 'spacing: now, on another server');
foreach my $option ('--retry', '--spacing=1 hour')
{
	is(run_on($nodes[0], $option, '/jobs/late', 'echo', 'ran'), '64 ', "$option without --once");
}

# However the command ends before it has succeeded, the run has failed.
sub start_on
{
	my ($node, @args) = @_;
	local %ENV = (%ENV, PGHOST => $node->host, PGPORT => $node->port, PGDATABASE => 'postgres', PGUSER => 'postgres');
	my %run = (out => '', err => '');
	$run{harness} = IPC::Run::start([ $program, @args, 'perl', '-e', '$| = 1; print "begun\n"; sleep 180' ],
		'<', \undef, '>', \$run{out}, '2>', \$run{err}, IPC::Run::timer($PostgreSQL::Test::Utils::timeout_default));
	$run{harness}->pump until $run{out} =~ /begun/;
	return \%run;
}

my $run = start_on($nodes[0], "--once=$first", '/jobs/killed');
kill 'KILL', $run->{harness}{KIDS}[0]{PID};
$run->{harness}->finish;
record_is('/jobs/killed', 'failed 1', 'zklock-run is killed: failed');

$nodes[0]->configure('zklock.session_timeout' => '8s');
$nodes[0]->restart;
$nodes[0]->wait_until_connected;
$run = start_on($nodes[0], "--once=$first", '/jobs/stalled');
my $worker = $nodes[0]->worker_pid;
kill 'STOP', $worker;
$run->{harness}->finish;
is($run->{harness}->full_result >> 8, 79, 'the worker stalls: lost');
kill 'CONT', $worker;
record_is('/jobs/stalled', 'failed 1', 'the worker stalls: failed');
$nodes[0]->wait_until('SELECT safe FROM zk_status');
is(run_on($nodes[1], "--once=$first", '--retry', '-t', '1 min', '/jobs/stalled', 'echo', 'ran'), "0 ran\n", 'and run elsewhere with --retry');
$nodes[0]->configure('zklock.session_timeout' => '30s');
$nodes[0]->restart;
$nodes[0]->wait_until_connected;

# A run goes on elsewhere: only a call with --timeout waits for it.
my $backend = $nodes[1]->backend;
is($backend->query("SELECT zk_run_once('/jobs/a', '$third')"), 't', 'a run goes on elsewhere');
is(run_on($nodes[0], "--once=$third", '--retry', '/jobs/a', 'echo', 'ran'), '75 ', 'it is not waited for');
is(run_on($nodes[0], "--once=$third", '--retry', '-t', '200 ms', '/jobs/a', 'echo', 'ran'), '75 ', 'but with --timeout, as long as that');
$backend->quit;

# A zklock-run that is killed while it waits does not use up the tick later.
$backend = $nodes[1]->backend;
is($backend->query("SELECT zk_run_once('/jobs/waiter', '$second')"), 't', 'a run goes on elsewhere');
{
	local %ENV = (%ENV, PGHOST => $nodes[0]->host, PGPORT => $nodes[0]->port, PGDATABASE => 'postgres', PGUSER => 'postgres');
	my $waiter = IPC::Run::start([ $program, "--once=$third", '-t', '1 hour', '/jobs/waiter', 'true' ]);
	$nodes[0]->wait_for_waiter('/jobs/waiter', 1);
	kill 'KILL', $waiter->{KIDS}[0]{PID};
	$waiter->finish;
}
$nodes[0]->wait_for_waiter('/jobs/waiter', 0);
$backend->quit;
is(run_on($nodes[0], "--once=$third", '-t', '1 min', '/jobs/waiter', 'echo', 'ran'), "0 ran\n", 'killed while it waits: the tick is not used up');

# The nearest minute may change between two calls, but not twice.
foreach my $now ('now', 'NOW')
{
	my @ran = grep { run_on($nodes[ $_ % 2 ], "--once=$now", "/jobs/$now", 'echo', 'ran') eq "0 ran\n" } 1 .. 4;
	cmp_ok(scalar(@ran), '>=', 1, "$now: runs");
	cmp_ok(scalar(@ran), '<=', 2, "$now: once a minute");
}
is(run_on($nodes[0], '--once=sometime', '/jobs/a', 'true'), '64 ', 'no point in time');
is(run_on($nodes[0], '--once=infinity', '/jobs/a', 'true'), '64 ', 'no tick');

# --- the units for systemd, as the recipes show them ---

my $page = slurp_file("$FindBin::RealBin/../../doc/recipes.md");
my %unit = $page =~ m{^```ini\n# /etc/systemd/system/(\S+)\n(.*?)^```$}msg;
is(join(' ', sort keys %unit), 'rotate.service rotate.timer', 'systemd: the units');
my ($start) = $unit{'rotate.service'} =~ /^ExecStart=(.*)$/m;
my (undef, @shown) = shellwords($start);
is(run_on($nodes[$_], @shown[ 0 .. $#shown - 2 ], 'echo', 'ran'), $_ ? '0 ' : "0 ran\n", "systemd: server $_") foreach 0, 1;

# The programs that they name are not on this machine.
my $units = PostgreSQL::Test::Utils::tempdir;
s{^ExecStart=\S+}{ExecStart=$program}m, s{/usr/local/bin/rotate}{/bin/true} foreach values %unit;
append_to_file("$units/$_", $unit{$_}) foreach keys %unit;
SKIP: {
	skip 'there is no systemd-analyze', 2 if !grep { -x "$_/systemd-analyze" } split /:/, $ENV{PATH};
	foreach my $name (sort keys %unit)
	{
		IPC::Run::run([ 'systemd-analyze', 'verify', '--man=no', "$units/$name" ], '>&', \my $out);
		is($? . join('', grep { /\brotate\b/ } split /^/, $out), '0', "systemd: $name is valid");
	}
}

$_->stop foreach @nodes;
done_testing();
