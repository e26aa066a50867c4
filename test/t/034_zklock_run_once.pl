
# zklock-run --once: a command that runs once for each tick of a job.

use strict;
use warnings;

use File::Basename qw(dirname);
use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;

use ZklockNode;
use ZooKeeper;

chomp(my $bindir = `pg_config --bindir`);
my $program = dirname($ENV{TEMP_CONFIG}) . "/stage$bindir/zklock-run";
my $zk = ZooKeeper->new;
my @nodes = map { ZklockNode->started($_, $zk, 'zklock.session_timeout' => '8s', 'zklock.sessions' => $_ eq 'a' ? 2 : 1, 'zklock.linger' => 0) } qw(a b);

# zklock-run on this server: exit status, a space, and what it printed.
sub run_on
{
	my ($node, @args) = @_;
	local %ENV = (%ENV, PGHOST => $node->host, PGPORT => $node->port, PGDATABASE => 'postgres', PGUSER => 'postgres');
	IPC::Run::run([ $program, @args ], '<', \'', '>', \my $out, '2>', \my $err);
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

# The transaction that lasts as long as the command outlives the timeouts of the server.
my ($has_timeout) = $nodes[0]->safe_psql('postgres', q{SELECT count(*) FROM pg_settings WHERE name = 'transaction_timeout'});
{
	local $ENV{PGOPTIONS} = '-c idle_in_transaction_session_timeout=100ms' . ($has_timeout ? ' -c transaction_timeout=2s' : '');
	is(run_on($nodes[0], "--once=$first", '/jobs/long', 'sleep', $has_timeout ? 3 : 1), '0 ', 'a command longer than the timeouts of transactions');
}
record_is('/jobs/long', 'done 1', 'a command longer than the timeouts: done');

# Timers that are late by minutes: ticks within the spacing are one run.
is(run_on($nodes[0], "--once=$first", '--spacing=1 hour', '/jobs/late', 'echo', 'ran'), "0 ran\n", 'spacing: runs');
is(run_on($nodes[1], "--once=$third", '--spacing=1 hour', '/jobs/late', 'echo', 'ran'), '75 ', 'spacing: a later tick within it does not run');
is(run_on($nodes[1], "--once=$third", '--spacing=1 min', '/jobs/late', 'echo', 'ran'), "0 ran\n", 'spacing: one beyond it does');
is(run_on($nodes[0], '--once=now', '--spacing=1 hour', '/jobs/late', 'echo', 'ran'), "0 ran\n", 'spacing: now');
is(run_on($nodes[1], '--once=now', '--spacing=1 hour', '/jobs/late', 'echo', 'ran'), '75 ', 'spacing: now, on another server');
foreach my $option ('--retry', '--spacing=1 hour')
{
	is(run_on($nodes[0], $option, '/jobs/late', 'echo', 'ran'), '64 ', "$option without --once");
}

# Whatever ends the command before it has succeeded, the run has failed.
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
$run->{harness}->kill_kill(grace => 0);
record_is('/jobs/killed', 'failed 1', 'zklock-run is killed: failed');

$run = start_on($nodes[0], "--once=$first", '/jobs/stalled');
# The session without locks is idle, and its worker may stand still.
my ($worker, $idle) = split /\n/, $nodes[0]->safe_psql('postgres', 'SELECT worker_pid FROM zk_sessions ORDER BY ephemeral_bytes DESC');
$nodes[0]->wait_until("SELECT state = 'idle' FROM zk_sessions WHERE worker_pid = $idle");
kill 'STOP', $idle;
my $safe_until = $nodes[0]->status('safe_until');
$nodes[0]->wait_until("SELECT safe_until > '$safe_until' FROM zk_status") for 1 .. 2;
ok($run->{harness}->pumpable, 'the worker of an idle session stalls: the command goes on');
kill 'CONT', $idle;
kill 'STOP', $worker;
$run->{harness}->finish;
is($run->{harness}->full_result >> 8, 79, 'the worker of the session with the lock stalls: lost');
kill 'CONT', $worker;
record_is('/jobs/stalled', 'failed 1', 'the worker stalls: failed');
is(run_on($nodes[1], "--once=$first", '--retry', '-t', '1 min', '/jobs/stalled', 'echo', 'ran'), "0 ran\n", 'and run elsewhere with --retry');

# Another run goes on: only --timeout waits for it.
my $backend = $nodes[1]->backend;
is($backend->query("SELECT zk_run_once('/jobs/a', '$third')"), 't', 'a run goes on elsewhere');
is(run_on($nodes[0], "--once=$third", '--retry', '/jobs/a', 'echo', 'ran'), '75 ', 'it is not waited for');
is(run_on($nodes[0], "--once=$third", '--retry', '-t', '200 ms', '/jobs/a', 'echo', 'ran'), '75 ', 'but with --timeout, as long as that');
$backend->quit;

# The nearest minute may change between two calls, but not twice.
my @ran = grep { run_on($nodes[ $_ % 2 ], '--once=now', '/jobs/now', 'echo', 'ran') eq "0 ran\n" } 1 .. 4;
cmp_ok(scalar(@ran), '>=', 1, 'now: runs');
cmp_ok(scalar(@ran), '<=', 2, 'now: once a minute');
is(run_on($nodes[0], '--once=sometime', '/jobs/a', 'true'), '69 ', 'no point in time');
is(run_on($nodes[0], '--once=infinity', '/jobs/a', 'true'), '69 ', 'no tick');

$_->stop foreach @nodes;
done_testing();
