
# zklock-run: a command under a lock, which ends with the lock.

use strict;
use warnings;

use File::Basename qw(dirname);
use IPC::Run;
use Time::HiRes qw(time usleep);

use HoldingProxy;
use ZklockTest;

# As "make install" installed it.
my $stage = dirname($ENV{TEMP_CONFIG}) . '/stage';
chomp(my $bindir = `pg_config --bindir`);
my $program = "$stage$bindir/zklock-run";
my $directory = PostgreSQL::Test::Utils::tempdir;

my $zk = ZooKeeper->new;
my %settings = ('zklock.linger' => 0);
my $node = ZklockNode->started('a', $zk, %settings);
my $other = ZklockNode->started('b', $zk, %settings);
my $watcher = $other->backend;

# zklock-run on server a; %how are options of IPC::Run::start.
sub start_run
{
	my ($args, %how) = @_;
	my %run = (out => '', err => '', in => '');
	local %ENV = (%ENV, PGHOST => $node->host, PGPORT => $node->port, PGDATABASE => 'postgres', PGUSER => 'postgres');
	delete local $ENV{PGAPPNAME};		# of the test itself
	local @SIG{qw(HUP INT QUIT)} = ('DEFAULT') x 3;		# a shell's background job ignores some
	my @streams = $how{pty} ? ('<pty<', \$run{in}, '>pty>', \$run{out}, '2>', \$run{err})
	  : ('<', \$run{in}, '>', \$run{out}, '2>', \$run{err});
	$run{harness} = IPC::Run::start([ @{ $how{before} // [] }, $program, @$args ], @streams,
		$run{timer} = IPC::Run::timer($PostgreSQL::Test::Utils::timeout_default));
	$run{pid} = $run{harness}{KIDS}[0]{PID};
	return \%run;
}

sub wait_for_output
{
	my ($run, $pattern) = @_;
	my $found;

	until (($found) = $run->{out} =~ $pattern)
	{
		die "ended too early: $run->{out}$run->{err}" unless $run->{harness}->pumpable;
		die "timed out: $run->{out}$run->{err}" if $run->{timer}->is_expired;
		$run->{harness}->pump;
	}
	return $found;
}

# Exit status as a shell has it.
sub finish
{
	my ($run) = @_;
	$run->{harness}->finish;
	my $status = $run->{harness}->full_result;
	return $run->{status} = $status & 127 ? 128 + ($status & 127) : $status >> 8;
}

sub run_it
{
	my $run = start_run(@_);
	finish($run);
	return $run;
}

# A Perl command that says when it has begun, and its process ID.
sub perl_command
{
	my ($code) = @_;
	return ('perl', '-MTime::HiRes=time,sleep', '-e', "\$| = 1; $code");
}

my $begin = 'print "begun $$\n";';
my @sleeper = perl_command("$begin sleep 180");

# Starts zklock-run with this command, and returns when it has begun.
sub started
{
	my ($options, $code, %how) = @_;
	my $run = start_run([ @$options, perl_command($code // "$begin sleep 180") ], %how);
	$run->{command} = wait_for_output($run, qr/begun (\d+)\r?\n/);
	return $run;
}

sub is_running
{
	my ($pid) = @_;
	return (eval { slurp_file("/proc/$pid/status") } // '') =~ /^State:\s+[^Z]/m;
}

sub wait_until_gone
{
	my ($pid) = @_;
	my $deadline = time + $PostgreSQL::Test::Utils::timeout_default;
	while (is_running($pid))
	{
		die "process $pid still runs" if time > $deadline;
		usleep(10_000);
	}
	return 1;
}

# Another server can have the lock.  A try may come before ZooKeeper has processed the release.
sub is_free
{
	my ($path) = @_;
	my $free = $watcher->query("SELECT zk_lock_acquire('$path', '1min')") eq 't';
	$watcher->query("SELECT zk_lock_release('$path')") if $free;
	return $free;
}

# If zklock-run asks just when the lock is taken away, the backend answers before its connection ends.
my $taken = qr/The (?:connection to the server was lost|server does not hold it)/;

sub is_lost
{
	my ($run, $what, $why) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(finish($run), 79, "$what: exit status");
	like($run->{err}, qr/zklock-run: error: lock "\S+" was lost\nzklock-run: detail: $why/, "$what: says why");
	ok(!is_running($run->{command}), "$what: the command has ended");
	return;
}

# --- a command ---

my $run = run_it([ '/run/plain', 'printf', '%s|', 'a b', q{it's "so"}, '*', '$HOME', '', "two\nlines", '-t', '--help', '\\' ]);
is($run->{status}, 0, 'a command succeeds');
is($run->{out}, qq{a b|it's "so"|*|\$HOME||two\nlines|-t|--help|\\|}, 'its arguments arrive as they are');
is($run->{err}, '', 'and nothing is said');
ok(is_free('/run/plain'), 'the lock is released when zklock-run ends');

is(run_it([ '/run/plain', 'sh', '-c', 'exit 3' ])->{status}, 3, 'its exit status is passed on');
is(run_it([ '/run/plain', 'sh', '-c', 'kill -TERM $$' ])->{status}, 143, 'and a signal of which it died');
is(run_it([ '--', '/run/plain', 'sh', '-c', 'exit 75' ])->{status}, 75, 'whatever it is');
$run = run_it([ '/run/plain', '/nowhere/to/be/found' ]);
is($run->{status}, 127, 'a command that does not exist');
like($run->{err}, qr{error: could not execute "/nowhere/to/be/found": No such file}, 'is named');
is(run_it([ '/run/plain', '/etc/passwd' ])->{status}, 126, 'a file that is no command');
is(run_it([ '/run/plain', '/etc' ])->{status}, 126, 'a directory');
is(run_it([ '/run/plain', $_ ])->{status}, 127, "a command that does not exist: '$_'") foreach '', '/etc/passwd/x';
append_to_file("$directory/refused", '');
{
	local $ENV{PATH} = "/nowhere:$directory:/usr/bin:/bin";
	is(run_it([ '/run/plain', 'no-such-command' ])->{status}, 127, 'a command that is nowhere in PATH');
	is(run_it([ '/run/plain', 'refused' ])->{status}, 126, 'a file of PATH that is no command');
	is(run_it([ '/run/plain', 'true' ])->{status}, 0, 'a command at the end of PATH');
}

$run = run_it([ '/run/plain', 'sh', '-c', 'echo $ZKLOCK_PATH $ZKLOCK_TOKEN' ]);
like($run->{out}, qr{^/run/plain [1-9]\d+$}, 'the command knows path and token');

$run = started(['/run/plain']);
is($watcher->query(q{SELECT zk_lock_acquire('/run/plain', '0')}), 'f', 'the lock is held meanwhile');
is($watcher->query(q{SELECT application FROM zk_lock_queue('/run/plain')}), 'zklock-run', 'by zklock-run');
kill 'TERM', $run->{pid};
is(finish($run), 143, 'SIGTERM is passed on');
ok(!is_running($run->{command}), 'and ends the command');
ok(is_free('/run/plain'), 'and the lock is released');

$node->safe_psql('postgres', 'CREATE DATABASE empty; CREATE DATABASE elsewhere');
$node->safe_psql('elsewhere', 'CREATE SCHEMA "Of Locks"; CREATE EXTENSION zklock SCHEMA "Of Locks"');
$run = run_it([ '-d', 'dbname=elsewhere application_name=mine', '/run/plain', 'echo', 'fine' ]);
is("$run->{status} $run->{out}", "0 fine\n", 'the extension is found in its schema');

# A path is the same lock in all databases.
$node->safe_psql('postgres', q{CREATE DATABASE western ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0});
$node->safe_psql('western', 'CREATE EXTENSION zklock');
$run = started(["/run/\xc3\xa4"]);
is(run_it([ '-d', $_, '-t', '0', "/run/\xc3\xa4", 'true' ])->{status}, 75, "not ASCII: taken, in database $_")
  foreach 'postgres', 'western', 'dbname=western client_encoding=UTF8';
is(run_it([ '-d', 'dbname=western client_encoding=LATIN1', '-t', '0', "/run/\xe4", 'true' ])->{status}, 75, 'not ASCII: taken, in another encoding');
is(run_it([ '-d', 'western', '-t', '0', "/run/\xe4", 'true' ])->{status}, 64, 'not UTF-8: refused');
kill 'TERM', $run->{pid};
finish($run);

# --- what is no command ---

foreach ([ [], 'no path was given' ], [ ['/run/plain'], 'no command was given' ], [ [ '--no-such', '/x', 'true' ], 'no-such' ],
	[ [ '--shared', '--semaphore=2', '/x', 'true' ], 'only one of' ], [ [ '-g', '--semaphore=2', '/x', 'true' ], 'no transaction commits under a lease' ], [ [ '-E', '256', '/x', 'true' ], 'invalid value "256"' ],
	[ [ '-E', '75.9', '/x', 'true' ], 'invalid value "75.9"' ], [ [ '-E', '0x10', '/x', 'true' ], 'invalid value "0x10"' ],
	[ [ '--kill-after=soon', '/x', 'true' ], 'invalid value "soon"' ], [ [ '--kill-after=nan', '/x', 'true' ], 'invalid value "nan"' ],
	[ [ '-t', 'abc', '/x', 'true' ], 'invalid value "abc" for option --timeout' ],
	[ [ '--once=now', '--spacing=abc', '/x', 'true' ], 'invalid value "abc" for option --spacing' ],
	[ [ '--once=abc', '/x', 'true' ], 'invalid value "abc" for option --once' ],
	[ [ '--semaphore=abc', '/x', 'true' ], 'invalid value "abc" for option --semaphore' ], [ [ 'relative', 'true' ], 'invalid lock path' ],
	[ [ '--semaphore=0', '/x', 'true' ], 'ERROR:  ' ], [ [ '-t', '-1s', '/x', 'true' ], 'ERROR:  ' ], [ [ '--once=2999-01-01', '/x', 'true' ], 'ERROR:  ' ])
{
	my ($args, $says) = @$_;
	$run = run_it($args);
	is($run->{status}, 64, "usage: @$args");
	like($run->{err}, qr/\Q$says\E/, "usage: says: $says");
}
foreach ([ [ '-d', 'host=/nowhere', '/x', 'true' ], 'connection to server' ], [ [ '-d', 'empty', '/x', 'true' ], 'extension "zklock" does not exist in database "empty"' ])
{
	my ($args, $says) = @$_;
	$run = run_it($args);
	is($run->{status}, 69, "refused: @$args");
	like($run->{err}, qr/^zklock-run: error: .*\Q$says\E/, "refused: says: $says");
}
like(run_it(['--help'])->{out}, qr/Usage:/, '--help');
like(run_it(['--version'])->{out}, qr/^zklock-run \(zklock\) \d/, '--version');

# The manual page is there, without an error, and has each option.
my ($mandir) = map { m{^\Q$stage\E(.*)/man1/zklock-run\.1$} } split /\n/, `find $stage -name zklock-run.1`;
my $manual = "$stage$mandir/man1/zklock-run.1";
ok(-f $manual, 'the manual page is installed');
SKIP: {
	skip 'there is no manpath', 1 if !grep { -x "$_/manpath" } split /:/, $ENV{PATH};
	local $ENV{PATH} = "$bindir:$stage$bindir:$ENV{PATH}";
	chomp(my $searched = `manpath -q`);
	# (It derives only directories that exist.)
	like(":$searched:", qr/:(?:\Q$stage\E)?\Q$mandir\E:/, 'where man looks for it');
}
$run = {};
IPC::Run::run([ 'groff', '-man', '-Tutf8', '-ww', $manual ], '>', \$run->{out}, '2>', \$run->{err});
is($run->{err}, '', 'groff does not complain of it');
my $help = run_it(['--help'])->{out};
my $page = slurp_file($manual) =~ s/\\-/-/gr;
is(join(' ', grep { $page !~ /\Q$_\E\b/ } $help =~ /(--[\w-]+)/g), '', 'it has all options');

# --- a lock that is taken ---

$watcher->query(q{SELECT zk_lock_acquire('/run/taken')});
$run = run_it([ '-t', '0', '/run/taken', 'echo', 'ran' ]);
is("$run->{status} $run->{out}$run->{err}", '75 ', 'not acquired: the command does not run, and nothing is said');
is(run_it([ '--timeout=300 ms', '/run/taken', 'true' ])->{status}, 75, 'not acquired after a timeout');
is(run_it([ '-t', '0', '-E', '0', '/run/taken', 'false' ])->{status}, 0, 'not acquired: another exit status');
is(run_it([ '-t', '0', '/run/taken', '/nowhere/to/be/found' ])->{status}, 127, 'the command is looked for first');

foreach my $signal ('TERM', 'INT')
{
	$run = start_run([ '/run/taken', 'echo', 'ran' ]);
	$node->wait_for_waiter('/run/taken', 1);
	kill $signal, $run->{pid};
	is(finish($run), { TERM => 143, INT => 130 }->{$signal}, "SIG$signal during the wait ends it");
	is($run->{out}, '', 'without a command');
	$node->wait_for_waiter('/run/taken', 0);
}
$run = start_run([ '/run/taken', 'echo', 'ran' ]);
$node->wait_for_waiter('/run/taken', 1);
$watcher->query(q{SELECT zk_lock_release('/run/taken')});
is(finish($run), 0, 'waits for its turn');
is($run->{out}, "ran\n", 'and then runs');

# No timeout of the role ends the wait, for this server's own lock or another server's.
foreach my $holder ($node->backend, $watcher)
{
	local $ENV{PGOPTIONS} = '-c statement_timeout=1s -c lock_timeout=1s -c idle_session_timeout=1s';
	$holder->query(q{SELECT zk_lock_acquire('/run/taken')});
	$run = start_run([ '/run/taken', 'sleep', '2' ]);
	$node->wait_until(q{SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'zklock-run' AND wait_event IS NOT NULL
		AND state = 'active' AND clock_timestamp() > query_start + '1500 ms'});
	$holder->query(q{SELECT zk_lock_release('/run/taken')});
	is(finish($run), 0, 'waits longer than the timeouts, and runs longer') or diag($run->{err});
}

my @readers = map { started([ '-s', '/run/rw' ]) } 1, 2;
is(run_it([ '-x', '-t', '0', '/run/rw', 'true' ])->{status}, 75, 'readers share, a writer does not');
is(run_it([ '-t', '0', '/run/rw', 'true' ])->{status}, 69, 'a mutex is another kind');
kill 'TERM', $_->{pid} foreach @readers;
finish($_) foreach @readers;
$run = started([ '--exclusive', '/run/rw' ]);
is(run_it([ '--shared', '-t', '0', '/run/rw', 'true' ])->{status}, 75, 'a writer is alone');
kill 'TERM', $run->{pid};
finish($run);

my @leases = map { started([ '--semaphore=2', '/run/few' ]) } 1, 2;
is(run_it([ '--semaphore=2', '-t', '0', '/run/few', 'true' ])->{status}, 75, 'no more than two leases');
kill 'TERM', $_->{pid} foreach @leases;
finish($_) foreach @leases;
is(run_it([ '--semaphore=stored', '-t', '0', '/run/stored', 'true' ])->{status}, 64, 'no limit is stored');
$watcher->query(q{SELECT zk_semaphore_set_limit('/run/stored', 2)});
@leases = map { started([ '--semaphore=stored', '/run/stored' ]) } 1, 2;
is(run_it([ '--semaphore=stored', '-t', '0', '/run/stored', 'true' ])->{status}, 75, 'no more leases than the stored limit');
kill 'TERM', $_->{pid} foreach @leases;
finish($_) foreach @leases;

# --- the command's own transactions ---

my $blocker = $node->backend;
$node->safe_psql('postgres', 'CREATE TABLE written (v text)');

# What it sends to the server arrives there as it is.
my $odd = "/run/a b\\c'd\"e=\xc3\xa0";
{
	local $ENV{PGOPTIONS} = '-c work_mem=7MB';
	$run = run_it([ '-g', $odd, 'sh', '-c', "echo \$ZKLOCK_TOKEN; exec psql -XAt -c 'SHOW zklock.commit_under' -c 'SHOW client_connection_check_interval' -c 'SHOW work_mem'" ]);
	my ($token) = split /\n/, $run->{out};
	is($run->{out}, "$token\n$token $odd\n500ms\n7MB\n", 'guard: the setting of the command');
	is($run->{err}, '', 'guard: a transaction that reads is counted');
	$run = run_it([ '-g', '-d', 'dbname=western client_encoding=LATIN1', "/run/\xe4", 'sh', '-c', 'echo $ZKLOCK_TOKEN; printenv PGOPTIONS' ]);
	($token) = split /\n/, $run->{out};
	like($run->{out}, qr{ -c zklock.commit_under=$token\\ /run/\\\xc3\\\xa4$}, 'guard: the path in UTF-8');
}
foreach my $command ([ 'psql', '-c', q{INSERT INTO written VALUES ('guarded')} ], [ 'psql', '-c', 'SELECT 1' ])
{
	is(run_it([ '--guard', '/run/guard', @$command ])->{err}, '', "guard: @$command");
}
my $warning = qr{\Azklock-run: warning: no transaction of the command was guarded by lock "/run/guard"\nzklock-run: hint: };
foreach my $command (['true'], [ 'sh', '-c', q{PGOPTIONS='' exec psql -Xc 'SELECT 1'} ], [ 'psql', '-h', $other->host, '-p', $other->port, '-Xc', 'SELECT 1' ])
{
	$run = run_it([ '-g', '/run/guard', @$command ]);
	is($run->{status}, 0, "nothing was guarded: @$command");
	like($run->{err}, $warning, 'nothing was guarded: a warning');
}

# The lock is lost, while a statement runs whose client does not keep the backend.  Another server has the lock, and
# only then the statement goes on.
my %losses = (
	'taken by force' => sub { $watcher->query(q{SELECT zk_lock_force_release('/run/guard')}); },
	'zklock-run is killed' => sub { kill 'KILL', $_[0]{pid}; },
	'the command is killed' => sub { kill 'KILL', $_[0]{command}; });
foreach my $how (sort keys %losses)
{
	foreach my $guard ('', '--guard')
	{
		my $value = "$how $guard";
		$blocker->query('SELECT pg_advisory_lock(7)');
		$run = start_run([ $guard || (), '/run/guard', 'sh', '-c',
			qq{echo "begun \$\$"; PGOPTIONS="\$PGOPTIONS -c client_connection_check_interval=0" exec psql -qXc "INSERT INTO written SELECT '$value' FROM pg_advisory_lock_shared(7)"} ]);
		$run->{command} = wait_for_output($run, qr/begun (\d+)/);
		$node->wait_until(q{SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'advisory' AND query ~ '^INSERT'});
		$losses{$how}->($run);
		is($watcher->query(q{SELECT zk_lock_acquire('/run/guard', '1 min')}), 't', "$value: another server has the lock");
		finish($run);
		$blocker->query('SELECT pg_advisory_unlock(7)');
		$node->wait_until(q{SELECT count(*) = 0 FROM pg_stat_activity WHERE query ~ '^INSERT'});
		is($node->safe_psql('postgres', "SELECT count(*) FROM written WHERE v = '$value'"), $guard ? '0' : '1',
			$guard ? "$value: and no commit follows" : "$value: and the command commits after that");
		$watcher->query(q{SELECT zk_lock_release('/run/guard')});
	}
}
$blocker->quit;

# --- signals ---

my $traps = q{$SIG{$_} = sub { print "got $_[0]\n"; $n++ } foreach qw(HUP INT QUIT TERM USR1 USR2); };
foreach my $signal (qw(HUP INT QUIT TERM USR1 USR2))
{
	$run = started(['/run/signal'], "$traps $begin sleep 1 until \$n; exit 7");
	kill $signal, $run->{pid};
	is(finish($run), 7, "SIG$signal: the command decides what follows");
	like($run->{out}, qr/^got $signal$/m, "SIG$signal: it gets it");
}
$run = started(['/run/signal']);
kill 'STOP', $run->{command};
wait_until_stopped($run->{command});
kill 'TERM', $run->{pid};
eval { wait_until_gone($run->{command}) } or kill 'KILL', $run->{command};
is(finish($run), 143, 'a command that is stopped ends by a signal, too');
$run = started(['/run/signal'], "\$SIG{USR1} = sub { exit(\$SIG{PIPE} eq 'IGNORE' ? 5 : 6) }; $begin sleep 180",
	before => [ 'perl', '-e', '@SIG{qw(HUP PIPE)} = ("IGNORE") x 2; exec @ARGV' ]);
kill 'HUP', $run->{pid};
kill 'USR1', $run->{pid};
is(finish($run), 5, 'a signal that is ignored stays so');

# In the foreground of a terminal, the command can use the terminal, and gets each of its signals
# once.
$run = started(['/run/terminal'], "$traps $begin \$line = <STDIN>; print qq{read \$line}; sleep 180 until \$n; sleep 0.3; print qq{got \$n\n}", pty => 1);
$run->{in} .= "words\n";
wait_for_output($run, qr/(read words)/);
$run->{in} .= "\x03";
wait_for_output($run, qr/(got INT)/);
is(finish($run), 0, 'terminal: the command ends by itself');
like($run->{out}, qr/^got 1\r?$/m, 'terminal: one signal');
$run = started(['/run/terminal'], undef, pty => 1);
$watcher->query(q{SELECT zk_lock_force_release('/run/terminal')});
is_lost($run, 'terminal', $taken);

# It prompts for a password once, as psql does, but neither with -w nor without a terminal.
$node->safe_psql('postgres', q{CREATE ROLE secretive LOGIN PASSWORD 'open sesame'});
my $hba = $node->data_dir . '/pg_hba.conf';
my $rules = slurp_file($hba);
unlink $hba;
append_to_file($hba, "local all secretive scram-sha-256\n$rules");
$node->reload;
my @as = ('-d', 'dbname=postgres user=secretive', '-t', '0', '/run/secret');
foreach my $typed ('open sesame', 'wrong')
{
	$run = start_run([ @as, 'echo', 'in' ], pty => 1);
	wait_for_output($run, qr/(Password for user secretive: )/);
	$run->{in} .= "$typed\n";
	is(finish($run), $typed eq 'wrong' ? 69 : 0, "password: $typed");
	like($run->{out}, $typed eq 'wrong' ? qr/secretive: \r\n$/ : qr/secretive: \r\nin\r\n$/, "password: $typed: what the terminal shows");
}
foreach ([ '-w', pty => 1 ], [ '--no-password' ], [ '-t', pty => 0 ])
{
	my ($option, %how) = @$_;
	$run = start_run([ $option, $option eq '-t' ? '0' : (), @as, 'true' ], %how, $how{pty} ? () : (before => ['setsid']));
	is(finish($run), 69, "password: $option: no prompt");
	like($run->{err}, qr/no password supplied/, "password: $option: the error");
}
unlink $hba;
append_to_file($hba, $rules);
$node->reload;

# --- the user stops and continues it ---

sub wait_until_stopped
{
	my (@pids) = @_;
	my $deadline = time + $PostgreSQL::Test::Utils::timeout_default;
	until (@pids == grep { slurp_file("/proc/$_/status") =~ /^State:\s+T/m } @pids)
	{
		die 'not stopped' if time > $deadline;
		usleep(10_000);
	}
	return pass("stopped: @_");
}

# A shell with job control, in a few lines: its job is stopped by the terminal, and continues
# with the next line of input.
my $shell = q{use POSIX; $| = 1; $SIG{TTOU} = 'IGNORE'; $job = fork; setpgid($job, $job);
	if (!$job) { tcsetpgrp(0, getpid()); $SIG{TTOU} = 'DEFAULT'; exec @ARGV }
	while (waitpid($job, WUNTRACED) && kill 0, $job)		# it has not ended
	{ tcsetpgrp(0, getpgrp()); print "job $job stopped\n"; <STDIN>; tcsetpgrp(0, $job); kill 'CONT', -$job; }
	exit($? >> 8)};
my $patient = "\$SIG{TSTP} = 'IGNORE'; $begin sleep 0.01 until -e '$directory/go'; print 'went on'";

foreach my $terminal (0, 1)
{
	my $where = $terminal ? 'in a terminal' : 'without a terminal';
	my %how = $terminal ? (pty => 1, before => [ 'perl', '-e', $shell ]) : ();

	# The pause is longer than the lock was known to be safe.
	$run = started(['/run/stopped'], $patient, %how);
	$terminal ? ($run->{in} .= "\x1a") : kill 'TSTP', $run->{pid};
	my $watching = $terminal ? wait_for_output($run, qr/job (\d+) stopped/) : $run->{pid};
	wait_until_stopped($watching, $run->{command});
	my $safe_until = $node->status('safe_until');
	$node->wait_until("SELECT clock_timestamp() > '$safe_until'");
	$terminal ? ($run->{in} .= "\n") : kill 'CONT', $run->{pid};
	append_to_file("$directory/go", '');
	is(finish($run), 0, "$where: continues") or diag($run->{err});
	like($run->{out}, qr/went on/, "$where: so does the command");
	unlink("$directory/go");

	# And the lock is lost during the pause.
	$run = started(['/run/stopped'], $patient, %how);
	$terminal ? ($run->{in} .= "\x1a") : kill 'TSTP', $run->{pid};
	$watching = $terminal ? wait_for_output($run, qr/job (\d+) stopped/) : $run->{pid};
	wait_until_stopped($watching, $run->{command});
	$watcher->query(q{SELECT zk_lock_force_release('/run/stopped')});
	$node->wait_until(q{SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'zklock-run'});
	$terminal ? ($run->{in} .= "\n") : kill 'CONT', $run->{pid};
	is_lost($run, "$where: lost while it was stopped", qr/The (connection|server)/);
}

# --- the command runs as another user ---

# A wait that is longer than a second while the command runs is reported: it would not count a suspend of the machine.
append_to_file("$directory/no_kill.c", <<'END');
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <sys/select.h>
#include <unistd.h>
static int runs;
int kill(pid_t pid, int number) { runs = 1; errno = EPERM; return -1; }
int pselect(int n, fd_set *r, fd_set *w, fd_set *e, const struct timespec *t, const sigset_t *mask)
{
	int (*real)(int, fd_set *, fd_set *, fd_set *, const struct timespec *, const sigset_t *) = dlsym(RTLD_NEXT, "pselect");
	if (runs && t && t->tv_sec + t->tv_nsec / 1e9 > 1 && write(2, "a long wait\n", 12)) runs = 0;
	return real(n, r, w, e, t, mask);
}
END
system_or_bail('cc', '-shared', '-fPIC', '-o', "$directory/no_kill.so", "$directory/no_kill.c", '-ldl');
$run = started(['/run/user'], undef, before => [ 'env', "LD_PRELOAD=$directory/no_kill.so" ]);
foreach my $says ('could not send a signal to the command: Operation not permitted', 'Put sudo before zklock-run', 'lock "/run/user" was lost')
{
	$watcher->query(q{SELECT zk_lock_force_release('/run/user')}) if $says =~ /lost/;
	$run->{harness}->pump until $run->{err} =~ /\Q$says/ || $run->{timer}->is_expired;
	like($run->{err}, qr/\Q$says/, "another user: says: $says");
	ok(is_running($run->{command}), 'another user: while the command runs');
}
kill 'KILL', $run->{command};
is(finish($run), 79, 'another user: waits for the end of the command');
unlike($run->{err}, qr/a long wait/, 'each wait while the command runs is short');

# --- the lock is lost ---

# Processes of a command that all ignore SIGTERM, but say so.
my $stubborn = q{$SIG{TERM} = sub { print "TERM at ", time, "\n" }; $child = fork; };
my $keep_on = q{ $at = time; while (1) { sleep 0.01 while time < $at + 0.01; $at = time; print "alive at $at\n" if $child; } };

$run = started(['/run/lost']);
$watcher->query(q{SELECT zk_lock_force_release('/run/lost')});
is_lost($run, 'forced release', $taken);
like($run->{err}, qr{FATAL:  lock "/run/lost" was lost\nDETAIL:  |The server does not hold it}, 'forced release: the server says why');
ok(is_free('/run/lost'), 'forced release: free');

my ($child, $told_at, $alive_at);
foreach (1 .. 3)						# a machine that stands still meanwhile hides that the command lives on
{
	$run = started([ '-k', '1', '/run/lost' ], "$stubborn if (!\$child) { sleep 180 while 1 } print qq{child \$child\n}; $begin $keep_on");
	($child) = $run->{out} =~ /^child (\d+)/m;
	$watcher->query(q{SELECT zk_lock_force_release('/run/lost')});
	is_lost($run, 'a command that ignores SIGTERM', $taken);
	($told_at) = $run->{out} =~ /^TERM at (\S+)/m;
	($alive_at) = $run->{out} =~ /.*^alive at (\S+)/ms;
	last if $alive_at - $told_at > 0.8;
}
cmp_ok($alive_at - $told_at, '>', 0.8, 'it is told first');
cmp_ok($alive_at - $told_at, '<', 5, 'and ended after --kill-after');
ok(wait_until_gone($child), 'and what it has started');

$run = started(['/run/lost'], "\$SIG{TERM} = sub { exit 0 }; \$child = fork; if (!\$child) { sleep 180; exit } print qq{child \$child\n}; $begin sleep 180");
($child) = $run->{out} =~ /^child (\d+)/m;
$node->expire_session($zk, by_hand => 1);
is_lost($run, 'ZooKeeper session ended', $taken);
ok(wait_until_gone($child), 'ZooKeeper session ended: nothing is left running');

$run = started(['/run/lost']);
$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'zklock-run'});
is_lost($run, 'backend ended', qr/The connection/);
ok(is_free('/run/lost'), 'backend ended: free');

# Lost when the command has just ended: the loss is known before the status counts.
$run = started(['/run/lost'], "$begin <STDIN>; exit 0");
kill 'STOP', $run->{pid};
$watcher->query(q{SELECT zk_lock_force_release('/run/lost')});
$node->wait_until(q{SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'zklock-run'});
$run->{in} .= "\n";
$run->{harness}->pump_nb;
wait_until_gone($run->{command});
kill 'CONT', $run->{pid};
is_lost($run, 'lost unnoticed', qr/The (connection|server did not confirm)/);

# kill -9 of zklock-run itself
$run = started(['/run/lost']);
kill 'KILL', $run->{pid};
is(finish($run), 137, 'zklock-run killed');
ok(wait_until_gone($run->{command}), 'zklock-run killed: so is the command');
$node->wait_until_clean('/run/lost');
ok(is_free('/run/lost'), 'zklock-run killed: free');

# A silence of ZooKeeper that no commit would notice does not end the command.
$run = started(['/run/foreseen'], "$begin <STDIN>; exit 0");
$zk->pause;
usleep(2_000_000);
$zk->resume;
$run->{in} .= "\n";
is(finish($run), 0, 'a short silence of ZooKeeper is nothing');

# --- the loss is foreseen ---

$node->set('zklock.session_timeout', '8s');
$node->expire_session($zk, by_hand => 1);

# The lock is not lost yet.  The command, which ignores SIGTERM, ends before the lock is lost, and
# before another server has it.
foreach my $what ('worker', 'backend')
{
	$run = started(['/run/foreseen'], "$stubborn if (!\$child) { exit } $begin $keep_on");
	my $stalled = $what eq 'worker' ? $node->worker_pid
	  : $node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE application_name = 'zklock-run'});
	$watcher->send(q{SELECT zk_lock_acquire('/run/foreseen')});
	$node->wait_until_contended('/run/foreseen');
	kill 'STOP', $stalled;
	my $safe_until = $node->safe_psql('postgres', 'SELECT extract(epoch FROM safe_until) FROM zk_status');
	is_lost($run, "$what stalls", qr/The server did not confirm it in time/);
	($told_at) = $run->{out} =~ /^TERM at (\S+)/m;
	($alive_at) = $run->{out} =~ /.*^alive at (\S+)/ms;
	cmp_ok($told_at, '<', $alive_at, "$what stalls: the command is told before it is killed");
	ok(!$watcher->is_done, "$what stalls: and has ended before another server has the lock");

	# A machine that is too busy may be late.
	if ($ENV{ROUNDS})
	{
		cmp_ok($told_at, '<', $safe_until - 1, "$what stalls: the command is told in time");
		cmp_ok($alive_at, '<', $safe_until, "$what stalls: and has ended before the lock is unsafe");
	}
	kill 'CONT', $stalled if $what eq 'backend';
	is($watcher->answer, 't', "$what stalls: until later");
	kill 'CONT', $stalled;
	$node->wait_until_connected;
	$watcher->query(q{SELECT zk_lock_release('/run/foreseen')});
}

# Before the command starts, zklock-run asks again if an answer comes when the lock is not safe any more, or if the lock is
# in doubt.  This database gives so many answers of each kind.
$node->safe_psql('postgres', 'CREATE DATABASE late');
$node->safe_psql('late', q{
	CREATE EXTENSION zklock;
	CREATE SEQUENCE answers MINVALUE 0 START 1;
	CREATE FUNCTION is_held(text) RETURNS boolean AS '$libdir/zklock', 'zklock_lock_is_held' LANGUAGE C;
	CREATE OR REPLACE FUNCTION zk_lock_is_held(path text) RETURNS boolean LANGUAGE plpgsql SET search_path = public AS $$
	DECLARE
		answer bigint := nextval('answers');
		safe_until timestamptz := (SELECT safe_until FROM zk_sessions());
	BEGIN
		WHILE answer <= current_setting('test.late')::int AND clock_timestamp() < safe_until LOOP
			PERFORM pg_sleep(0.1);
		END LOOP;
		IF answer = 0 THEN
			RAISE 'no answer';
		END IF;
		RETURN is_held(path) AND answer > current_setting('test.doubtful')::int;
	END $$;
	CREATE SEQUENCE tokens;
	CREATE FUNCTION token(text) RETURNS bigint AS '$libdir/zklock', 'zklock_lock_token' LANGUAGE C;
	CREATE OR REPLACE FUNCTION zk_lock_token(path text) RETURNS bigint LANGUAGE plpgsql SET search_path = public AS $$
	BEGIN
		IF nextval('tokens') = 1 AND current_setting('test.token', true) = 'lost' THEN
			PERFORM zk_lock_force_release(path);
			WHILE is_held(path) LOOP
				PERFORM pg_sleep(0.01);
			END LOOP;
		ELSIF currval('tokens') = 1 AND current_setting('test.token', true) = 'doubted' THEN
			RAISE 'in doubt' USING ERRCODE = 'ZK001';
		END IF;
		RETURN token(path);
	END $$});
foreach ([ 1, 0, 0, 'ran', qr/^$/ ], [ 0, 3, 0, 'ran', qr/^$/ ], [ 0, 1e6, 69, '', qr{did not confirm lock "/run/late" in time to start} ])
{
	my ($late, $doubtful, $status, $out, $err) = @$_;
	local $ENV{PGOPTIONS} = "-c test.late=$late -c test.doubtful=$doubtful";
	$node->safe_psql('late', 'ALTER SEQUENCE answers RESTART');
	$run = run_it([ '-d', 'late', '/run/late', 'printf', 'ran' ]);
	is("$run->{status} $run->{out}", "$status $out", "before the command, $late answers are late, and $doubtful in doubt");
	like($run->{err}, $err, 'and so it says');
}

# One error after the end of the command says nothing about the lock.
{
	local $ENV{PGOPTIONS} = '-c test.late=-1 -c test.doubtful=0';
	$run = run_it([ '-d', 'late', '/run/late', 'psql', '-d', 'late', '-Xqc', "SELECT setval('answers', 0, false)" ]);
	is($run->{status}, 0, 'an error after the command: asks again');
	like($run->{err}, qr/^zklock-run: error: ERROR:  no answer$/m, 'an error after the command: shows it');
}

# The lock is in doubt, or lost, when the token is read.
foreach ([ 'doubted', 1, '--once=now', '-g' ], [ 'lost', 2, '--once=now', '-g' ], [ 'lost', 0 ])
{
	my ($state, $attempt, @options) = @$_;
	my $path = "/run/token/$state$attempt";
	local $ENV{PGOPTIONS} = "-c test.late=0 -c test.doubtful=0 -c test.token=$state";
	$node->safe_psql('late', 'ALTER SEQUENCE tokens RESTART');
	$run = run_it([ '-d', 'late', @options, $path, 'sh', '-c', q{psql -d late -XAtc 'SHOW zklock.commit_under'; test "$ZKLOCK_TOKEN" && printf ran} ]);
	like("$run->{status} $run->{out}", @options ? qr{^0 \d+ $path\nran$} : qr/^0 \nran$/, "$state before the command, @options: it runs");
	is($run->{err} =~ /is acquired again/ ? 'lost' : 'doubted', $state, "$state before the command, @options: says");
	$node->wait_until("SELECT state = 'done' AND attempt = $attempt FROM zk_jobs WHERE path = '$path'") if $attempt;
}

# A lock that is lost before the command starts is acquired again; the run of a tick, too.
foreach my $once (0, 1)
{
	local $ENV{PGOPTIONS} = '-c test.late=0 -c test.doubtful=1000000';
	$node->safe_psql('late', 'ALTER SEQUENCE answers RESTART');
	$run = start_run([ '-d', 'late', ($once ? '--once=now' : ()), '/run/again', 'printf', 'ran' ]);
	$node->wait_until(q{SELECT count(*) = 1 FROM zk_locks WHERE path = '/run/again' AND granted});
	my $token = $node->safe_psql('postgres', q{SELECT token FROM zk_locks WHERE path = '/run/again'});
	$watcher->query(q{SELECT zk_lock_force_release('/run/again')});
	$node->wait_until("SELECT count(*) = 1 FROM zk_locks WHERE path = '/run/again' AND granted AND token > $token");
	$node->safe_psql('late', 'ALTER SEQUENCE answers RESTART 1000001');
	is(finish($run) . " $run->{out}", '0 ran', 'lost before the command starts, ' . ($once ? '--once' : 'a mutex') . ': it runs all the same');
}
$node->wait_until(q{SELECT state = 'done' AND attempt = 2 FROM zk_jobs WHERE path = '/run/again'});
pass('the same tick, in another attempt');

# --timeout is for all tries together.
{
	local $ENV{PGOPTIONS} = '-c test.late=0 -c test.doubtful=1000000 -c log_statement=all';
	$node->safe_psql('late', 'ALTER SEQUENCE answers RESTART');
	$run = start_run([ '-d', 'late', '-t', '2 s', '/run/again', 'true' ]);
	$node->wait_until(q{SELECT count(*) = 1 FROM zk_locks WHERE path = '/run/again' AND granted});
	$watcher->send(q{SELECT zk_lock_acquire('/run/again')});
	$node->wait_until_contended('/run/again');
	$node->wait_until(q{SELECT max(clock_timestamp() - backend_start) > '2 s' FROM pg_stat_activity WHERE application_name = 'zklock-run'});
	$other->safe_psql('postgres', q{SELECT zk_lock_force_release('/run/again')});
	is(finish($run), 75, 'lost before the command starts, --timeout: the exit status');
	is(join(' ', slurp_file($node->logfile) =~ m{[Pp]arameters: \$1 = '/run/again', \$2 = '([\d: s]+)'}g), '00:00:02 00:00:00', 'lost before the command starts, --timeout: it has passed');
	like($run->{err}, qr{warning: lock "/run/again" was lost before the command started}, 'lost before the command starts: so it says');
	is($watcher->answer, 't', 'lost before the command starts, --timeout: another server has the lock');
	$watcher->query(q{SELECT zk_lock_release('/run/again')});
}

# All answers of the server come late, from the wait for the lock on.  A command is not started, or it is not ended.  Answers that come
# every 0.45 s meet the moments before each sign of life, when the lock is safe for the shortest time.
my $line = HoldingProxy->new($node->host . '/.s.PGSQL.' . $node->port);
my $through = sprintf 'host=%s port=%s user=postgres dbname=%%s', split /:/, $line->address;
my $not_in_time = qr{error: the server did not confirm lock "/run/line" in time to start the command\n};
foreach ([ 0.45, '1100ms', [], '0 ran', qr/^$/ ], [ 0.45, '1100ms', [ '-g', '--once=now' ], '0 ran', qr/^zklock-run: warning: no transaction/ ],
	[ 2, '100ms', [], '69 ', $not_in_time ], [ 9, '100ms', [], '69 ', $not_in_time ])
{
	my ($late, $margin, $options, $ends, $says) = @$_;
	local $ENV{PGOPTIONS} = "-c zklock.commit_margin=$margin";
	my @blocker = @$options ? () : ($watcher);
	$_->query(q{SELECT zk_lock_acquire('/run/line')}) foreach @blocker;
	$run = start_run([ '-d', sprintf($through, 'postgres'), @$options, @$options ? '/run/line/job' : '/run/line', 'sh', '-c', 'sleep 10; printf ran' ]);
	$node->wait_for_waiter('/run/line', 1) if @blocker;
	$line->delay($late);
	$_->query(q{SELECT zk_lock_release('/run/line')}) foreach @blocker;
	finish($run);
	is("$run->{status} $run->{out}", $ends, "each answer comes $late s late, @$options");
	like($run->{err}, $says, "each answer comes $late s late, @$options: says");
	$line->delay(0);
}

# The server falls silent, while zklock-run waits for the lock, or between two looks before the command starts.
foreach my $where ('wait', 'look')
{
	local $ENV{PGOPTIONS} = '-c test.late=0 -c test.doubtful=1000000';
	$watcher->query(q{SELECT zk_lock_acquire('/run/silent')}) if $where eq 'wait';
	$node->safe_psql('late', 'ALTER SEQUENCE answers RESTART');
	$run = start_run([ '-d', sprintf($through, 'late'), '/run/silent', 'true' ]);
	$where eq 'wait' ? $node->wait_for_waiter('/run/silent', 1)
	  : $node->wait_until(q{SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'zklock-run' AND state = 'idle' AND query ~ '^SELECT NOT EXISTS'});
	kill 'STOP', $run->{pid};
	wait_until_stopped($run->{pid});
	$line->hold('replies');
	kill 'TERM', $run->{pid};
	kill 'CONT', $run->{pid};
	eval { wait_until_gone($run->{pid}) } or kill 'KILL', $run->{pid};
	is(finish($run), 143, "silence, $where: one signal ends it, though nothing withdraws the request");
	$line->cut;
	$watcher->query(q{SELECT zk_lock_release('/run/silent')}) if $where eq 'wait';
}

# With a long margin, a command has less time to end, or none; but while nothing is wrong, it is not ended.
$node->set('zklock.session_timeout', '20s');
$node->expire_session($zk, by_hand => 1);
foreach ([ '4.7s', 6 ], [ '7.9s', 0 ])
{
	my ($margin, $seconds) = @$_;
	local $ENV{PGOPTIONS} = "-c zklock.commit_margin=$margin";
	# A standstill of the machine may use the rest of the time up.
	foreach (1 .. 3)
	{
		$run = run_it([ '/run/foreseen', 'sleep', $seconds ]);
		last unless $run->{err} =~ /did not confirm it in time/;
	}
	is("$run->{status} $run->{err}", '0 ', "a commit margin of $margin does not end a command");
}

# Nor does it if the user has stopped the command for longer than the lock was known to be safe.
{
	local $ENV{PGOPTIONS} = '-c zklock.commit_margin=7.9s';
	$run = started(['/run/stopped'], $patient);
	kill 'TSTP', $run->{pid};
	wait_until_stopped($run->{pid}, $run->{command});
	my $safe_until = $node->status('safe_until');
	$node->wait_until("SELECT clock_timestamp() > '$safe_until'");
	append_to_file("$directory/go", '');
	kill 'CONT', $run->{pid};
	is(finish($run), 0, 'a commit margin without a grace: a stopped command continues') or diag($run->{err});
	unlink("$directory/go");
}

# --- the server ends ---

foreach my $how ('stopped', 'killed')
{
	$run = started(['/run/lost']);
	$how eq 'stopped' ? $node->stop('fast') : $node->kill9_all;
	is_lost($run, "server $how", qr/The connection to the server was lost/);
	$watcher->query(q{SELECT zk_lock_acquire('/run/lost')});
	$watcher->query(q{SELECT zk_lock_release('/run/lost')});
	$node->start;
	$node->wait_until_connected;
}

$watcher->quit;
$_->stop foreach $node, $other;
done_testing();
