
# Commands under zklock-run --guard on two servers, while programs, backends, workers and servers are killed and stand
# still at random: no transaction of a command commits after the next command has begun.  Without --guard, some do.

use strict;
use warnings;

use File::Basename qw(dirname);
use POSIX ();
use Time::HiRes qw(time usleep);

use ZklockTest;

my $seed = $ENV{SEED} // 1;
my $seconds = $ENV{SECONDS} // 25;
my $stage = dirname($ENV{TEMP_CONFIG}) . '/stage';
chomp(my $bindir = `pg_config --bindir`);
my $directory = PostgreSQL::Test::Utils::tempdir;
my $zk = ZooKeeper->new;
my @nodes = map { ZklockNode->started($_, $zk, 'zklock.session_timeout' => '4s', 'restart_after_crash' => 'on', 'track_commit_timestamp' => 'on',
	'zklock.linger' => 0, 'max_connections' => 40) } 'north', 'south';
$_->safe_psql('postgres', 'CREATE TABLE written (round text, token bigint)') foreach @nodes;

# The command notes when it has begun, on the clock of the servers.  Its backend goes on without it, as it would
# behind a network that is cut.
my $command = q{echo "$ZKLOCK_TOKEN $(date +%s.%N)" >>$DIRECTORY/begun.$ROUND
	PGOPTIONS="$PGOPTIONS -c client_connection_check_interval=0" exec psql -qXc "INSERT INTO written SELECT '$ROUND', $ZKLOCK_TOKEN FROM pg_sleep($PAUSE)"};

# A process that runs one command after the other, until its time is over.
sub run_commands
{
	my ($node, $number, $round, $until) = @_;
	my $pid = fork // die "fork: $!";
	return $pid if $pid;
	srand "$seed$number";
	local %ENV = (%ENV, PGHOST => $node->host, PGPORT => $node->port, PGDATABASE => 'postgres', PGUSER => 'postgres',
		DIRECTORY => $directory, ROUND => $round);
	open STDOUT, '>>', "$directory/output" or die $!;
	open STDERR, '>&', \*STDOUT or die $!;
	while (time < $until)
	{
		$ENV{PAUSE} = rand() < 0.3 ? rand 3 : rand 0.2;
		system "$stage$bindir/zklock-run", ($round eq 'guarded' ? '--guard' : ()), '-t', '5 s', '/history', 'sh', '-c', $command;
		usleep(50_000);
	}
	POSIX::_exit(0);
}

sub pids_of { my ($name) = @_; return grep { (eval { slurp_file("/proc/$_/environ") } // '') =~ /DIRECTORY=\Q$directory\E\0/ && (eval { slurp_file("/proc/$_/comm") } // '') eq "$name\n" } map { m{(\d+)$} } glob '/proc/[0-9]*'; }
sub pick { return $_[ rand @_ ]; }
sub hit { my ($signal, @pids) = @_; kill $signal, pick(@pids) if @pids; return; }
sub pause { my ($long, @pids) = @_; return if !@pids; my $pid = pick(@pids); kill 'STOP', $pid; usleep(1e6 * $long); kill 'CONT', $pid; return; }
sub backends { my ($node) = @_; return split /\n/, eval { $node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE query ~ '^INSERT'}) } // ''; }
sub worker { my ($node) = @_; return grep { $_ } eval { $node->worker_pid }; }
my %faults = (
	'zklock-run, kill -9' => sub { hit('KILL', pids_of('zklock-run')); },
	'psql, kill -9' => sub { hit('KILL', pids_of('psql')); },
	'zklock-run stands still' => sub { pause(rand 2, pids_of('zklock-run')); },
	'a backend stands still' => sub { pause(rand 1, backends($_[0])); },
	'the worker stands still' => sub { pause(rand 6, worker($_[0])); },
	'the worker ends' => sub { hit('TERM', worker($_[0])); },
	'the worker, kill -9' => sub { hit('KILL', worker($_[0])); sleep 1; });

# Returns how many commits came after the begin of a later command, and how many commits there were.
sub play
{
	my ($round, $seconds, @faults) = @_;
	my $until = time + $seconds;
	my $number = 0;
	my @runners = map { my $node = $_; map { run_commands($node, $number++, $round, $until) } 1 .. 3 } @nodes;
	srand $seed;
	while (time < $until)
	{
		my $fault = pick(@faults);
		note sprintf '%.1f %s', time - $until, $fault;
		$faults{$fault}->(pick(@nodes));
		usleep(rand 500_000);
	}
	waitpid $_, 0 foreach @runners;
	my @begun = map { [ split ' ' ] } grep { /^\d+ [\d.]+$/ } split /\n/, slurp_file("$directory/begun.$round");
	my ($late, $commits) = (0, 0);
	foreach my $node (@nodes)
	{
		$node->wait_until(q{SELECT count(*) = 0 FROM pg_stat_activity WHERE query ~ '^INSERT'});
		foreach my $row (split /\n/, $node->safe_psql('postgres',
			"SELECT token, extract(epoch FROM pg_xact_commit_timestamp(xmin)) FROM written WHERE round = '$round'"))
		{
			my ($token, $at) = split /\|/, $row;
			$commits++;
			my @later = grep { $_->[0] > $token && $_->[1] < $at } @begun or next;
			$late++;
			diag "$round: token $token committed at $at, after @{$later[0]} had begun" if $round eq 'guarded';
		}
	}
	note "$round: $commits commits, $late late, " . @begun . ' commands';
	return ($late, $commits);
}

my @killers = ('zklock-run, kill -9', 'psql, kill -9');
my ($late, $commits) = play('plain', 10, @killers);
cmp_ok($late, '>', 0, 'without --guard, commits come after the next command has begun');
($late, $commits) = play('guarded', $seconds, @killers, sort keys %faults);
is($late, 0, "seed $seed: with --guard, none does");
cmp_ok($commits, '>', 5, 'and some commit');

$_->stop foreach @nodes;
done_testing();
