#!/usr/bin/perl
#
# Measures the workloads of Workloads.pm, with servers that test/bench/run has started.
#
# The systems and their forms take turns, round by round; each measurement follows a shorter
# one of the same that does not count.  The measurements go to a CSV file.

use strict;
use warnings;

use File::Temp;
use IO::Handle;
use IO::Socket::INET;
use IPC::Open2;
use List::Util qw(max);
use POSIX qw(ceil);
use Time::HiRes qw(time usleep);

use PgbenchLog;
use Workloads;

my %arg = map { split /=/, $_, 2 } @ARGV;
my ($bench, $ensemble, $seconds, $is_short) = @arg{qw(bench ensemble seconds short)};
my @ports = split /,/, $arg{ports};
my @zookeepers = split /,/, $arg{hosts};
my $counter_file = "$bench/counter";
my $problems = 0;

$| = 1;
$SIG{PIPE} = 'IGNORE';
open my $csv, '>>', $arg{csv} or die "$arg{csv}: $!";
$csv->autoflush(1);

sub record
{
	my ($workload, $system, $round, %value) = @_;
	foreach my $metric (sort keys %value)
	{
		next unless defined $value{$metric};
		print $csv join(',', $ensemble, $workload, $system, $round, $metric, $value{$metric}), "\n";
	}
	return;
}

# --- clients that are driven by lines -------------------------------------------

# Server I of every system uses the same ZooKeeper server, so that no system is nearer to the leader
# than another by chance.
sub host_of { my ($i) = @_; return $zookeepers[ $i % @zookeepers ]; }
sub hosts_from { my ($i) = @_; return join ',', map { host_of($i + $_) } 0 .. $#zookeepers; }

sub base_of { my ($system) = @_; return (split /-/, $system)[0]; }
sub form_of { my ($system) = @_; return (split /-/, $system)[1] // '-'; }

my %command = (
	zookeeper => sub { my ($i) = @_; return ("$bench/zk_client", hosts_from($i), $i == 0 ? 16 : 1); },
	redis => sub { return ("$bench/redis_client", "$bench/redis.sock"); },
	kazoo => sub { my ($i) = @_; return ('/usr/bin/python3', 'test/bench/kazoo_bench.py', host_of($i)); },
	Curator => sub {
		my ($i) = @_;
		my $classes = join ':', $bench, map { "/usr/share/java/$_.jar" } 'curator-recipes', 'slf4j-nop';
		return ('java', '-Xmx512m', $is_short ? '-XX:TieredStopAtLevel=1' : (), '-cp', $classes, 'CuratorBench', host_of($i), host_of($i + 1));
	});
my %process;

# Kept while it may be needed again, so that a JVM is warm.
sub process_of
{
	my ($system, $i) = @_;
	my $name = base_of($system);
	return $process{"$name$i"} //= do {
		my $p = { name => $name };
		$p->{pid} = open2($p->{out}, $p->{in}, $command{$name}->($i));
		$p;
	};
}

sub send_to { my ($p, $line) = @_; print { $p->{in} } "$line\n"; $p->{in}->flush; return; }

sub answer_of
{
	my ($p) = @_;
	my $line = readline $p->{out};
	die "$p->{name} has died\n" unless defined $line;
	my ($is_ok, @values) = split ' ', $line;
	die "$p->{name}: $line" unless $is_ok eq 'ok';
	return @values;
}

sub ask { my ($p, $line) = @_; send_to($p, $line); return answer_of($p); }

END
{
	my $status = $?;
	foreach my $p (values %process)
	{
		kill 'KILL', $p->{pid};
		waitpid $p->{pid}, 0;
	}
	$? = $status;
}

# --- PostgreSQL -----------------------------------------------------------------

sub conninfo { my ($i) = @_; return "host=$arg{lab} port=$ports[$i] user=postgres dbname=postgres"; }

sub psql
{
	my ($i, $sql) = @_;
	open my $p, '-|', 'psql', conninfo($i), qw(-XqAt -v ON_ERROR_STOP=1 -c), $sql or die "psql: $!";
	my $out = do { local $/; <$p> } // '';
	close $p or die "psql failed: $sql\n";
	chomp $out;
	return $out;
}

# A session that stays, to hold the locks that it acquired.
sub open_session
{
	my ($i) = @_;
	my $s = {};
	$s->{pid} = open2($s->{out}, $s->{in}, 'psql', conninfo($i), qw(-XqAt -v ON_ERROR_STOP=1));
	return $s;
}

sub session_query
{
	my ($s, $sql) = @_;
	print { $s->{in} } "$sql;\n\\echo end\n";
	$s->{in}->flush;
	my $out = '';
	while (defined(my $line = readline $s->{out}))
	{
		return $out if $line eq "end\n";
		$out .= $line;
	}
	die "psql has ended: $sql\n";
}

sub close_session { my ($s) = @_; close $s->{in}; waitpid $s->{pid}, 0; return; }

# pgbench with "clients" clients on each of "servers" servers, all at a time.  Its time begins
# before its clients connect, and the first transaction of each client has to fill its backend's
# caches.  The clients of ZooKeeper and Redis are connected already.  So pgbench works longer,
# and the rate is that of the "seconds" after the first "start_up" seconds.
sub pgbench
{
	my ($script, %opt) = @_;
	my $directory = File::Temp->newdir(DIR => $bench);
	my $connecting = 1 + $opt{servers} * $opt{clients} / 32;
	my @limit = $opt{transactions} ? ('-t', $opt{transactions}) : ('-T', ceil($connecting + $opt{start_up} + $opt{seconds}));
	my @runs;

	open my $file, '>', "$directory/script" or die $!;
	print $file $script;
	close $file;
	foreach my $i (0 .. $opt{servers} - 1)
	{
		my @command = ('pgbench', '-n', '-M', 'prepared', '-h', $arg{lab},
			'-p', $ports[ $i + ($opt{first} // 0) ], '-U', 'postgres',
			'-c', $opt{clients}, '-j', $opt{clients} > 1 ? 2 : 1, '-f', "$directory/script", @limit,
			'-l', "--log-prefix=$directory/log$i", 'postgres');
		open my $run, '-|', join(' ', @command) . ' 2>&1' or die "pgbench: $!";
		push @runs, $run;
	}

	my %result = (rate => 0, counts => [], done => 0);
	foreach my $i (0 .. $#runs)
	{
		my $run = $runs[$i];
		my $text = do { local $/; <$run> };
		close $run or die "pgbench failed: $text";
		my ($tps) = $text =~ /^tps = ([\d.]+) \(without/m or die "pgbench: $text";
		my ($done) = $text =~ /actually processed: (\d+)/;
		my $log = PgbenchLog::read_files("$directory/log$i", $opt{clients});
		$result{rate} += $opt{transactions} ? $tps : PgbenchLog::rate_of($log, $opt{start_up}, $opt{seconds});
		$result{done} += $done;
		$result{server}[$i] = $done;
		push @{ $result{counts} }, @{ $log->{counts} };
	}
	return \%result;
}

# --- ZooKeeper ------------------------------------------------------------------

# Its answer to a four-letter word.
sub answer_to
{
	my ($zookeeper, $word) = @_;
	my $s = IO::Socket::INET->new(PeerAddr => $zookeeper) or die "no ZooKeeper at $zookeeper";
	print $s $word;
	local $/;
	return <$s>;
}

sub figure_of
{
	my ($zookeeper, $name) = @_;
	my $text = answer_to($zookeeper, 'mntr');
	$text =~ /^zk_$name\t(\d+)/m or die "mntr: $text";
	return $1;
}

sub sum_of { my ($name) = @_; my $sum = 0; $sum += figure_of($_, $name) foreach @zookeepers; return $sum; }

# Requests of clients, as the servers count them.
sub packets { return sum_of('packets_received'); }

# Heartbeats and pings of all that are connected go on at rest, too.
my $packets_at_rest = 0;

sub measure_rest
{
	my $time = $is_short ? 0.5 : 5;
	my ($before, $begin) = (packets(), time);
	usleep(1e6 * $time);
	$packets_at_rest = (packets() - $before) / (time - $begin);
	record('rest', 'all', 0, packets_per_second => $packets_at_rest);
	return;
}

# --- CPU time -------------------------------------------------------------------

my $ticks = POSIX::sysconf(&POSIX::_SC_CLK_TCK);

sub first_line { my ($file) = @_; open my $f, '<', $file or return ''; return scalar(<$f>) // ''; }

# The kernel's figures of a process: its parent, its own microseconds, and those of children that have ended.
sub times_of
{
	my ($pid) = @_;
	my @field = split ' ', first_line("/proc/$pid/stat") =~ s/^.*\) //sr;
	return @field ? ($field[1], map { 1e6 * $_ / $ticks } $field[11] + $field[12], $field[13] + $field[14]) : (0, 0, 0);
}

# Of all ZooKeepers, and of all processes of the PostgreSQL servers.
sub cpu_times
{
	my @java = map { first_line($_) + 0 } glob "$bench/zk$ensemble/[0-9]*/pid";
	my %server = map { (first_line($_) + 0 => 1) } glob "$arg{lab}/bench_?$ensemble/postmaster.pid";
	my %cpu = (zookeeper => 0, postgres => 0);
	$cpu{zookeeper} += (times_of($_))[1] foreach @java;
	foreach my $pid (map { m{(\d+)$} } glob '/proc/[0-9]*')
	{
		my ($parent, $own, $ended) = times_of($pid);
		$cpu{postgres} += $server{$pid} ? $own + $ended : $own if $server{$pid} || $server{$parent};
	}
	return %cpu;
}

# --- the work of an SQL client --------------------------------------------------

sub acquire_release { my ($acquire, $release) = @_; return { before => "$acquire;\n", after => "$release;\n" }; }

sub zklock_sql
{
	my ($path, $set) = @_;
	my $sql = acquire_release("SELECT zk_lock_acquire($path)", "SELECT zk_lock_release($path)");
	$sql->{set} = $set;
	return $sql;
}

sub advisory_sql
{
	my ($key, $set) = @_;
	my $sql = acquire_release("SELECT pg_advisory_lock($key)", "SELECT pg_advisory_unlock($key)");
	$sql->{set} = $set;
	return $sql;
}

# BEGIN goes out with the statement that locks, as JDBC sends it: so all systems in SQL take
# two round trips.
sub table_sql
{
	my ($path, $set, $insert) = @_;
	my $select = "SELECT path FROM lock WHERE path = $path FOR UPDATE";
	return {
		set => $set,
		before => join('', map { "$_\n" } '\startpipeline', 'BEGIN;', $insert ? "$insert;" : (), "$select;", '\endpipeline'),
		after => "COMMIT;\n" };
}

my $any = "\\set k random(1, 1000)\n";
my $new = "\\set k random(1, 1000000000000000)\n";

sub read_or_write
{
	my ($suffix, %f) = @_;
	return {
		set => "\\set r random(1, 100)\n\\if :r <= 95\n",
		before => "SELECT $f{read};\nSELECT $f{read_end};\n\\else\nSELECT $f{write};\n",
		after => "SELECT $f{write_end};\n\\endif\n"
	};
}

my %sql = (
	W1 => {
		zklock => zklock_sql(q{'/bench/w1'}),
		advisory => advisory_sql(1),
		table => table_sql(q{'w1'}) },
	W1x => {
		zklock => { before => "SELECT 1 WHERE zk_xact_lock_acquire('/bench/w1x');\n" },
		advisory => { before => "SELECT pg_advisory_xact_lock(1);\n" },
		table => { before => "SELECT path FROM lock WHERE path = 'w1x' FOR UPDATE;\n" } },
	W12 => {
		zklock => { before => "SELECT zk_claim_request('/bench/w12', '1 min') AS claim \\gset\nSELECT zk_claim_wait(:claim);\n"
			  . "BEGIN;\nSELECT zk_xact_claim_use(:claim);\nCOMMIT;\n", after => "SELECT zk_claim_release(:claim);\n" },
		'zklock-session' => { before => "SELECT zk_lock_acquire('/bench/w12');\nBEGIN;\nSELECT zk_lock_token('/bench/w12');\nCOMMIT;\n",
			after => "SELECT zk_lock_release('/bench/w12');\n" } },
	W2 => {
		zklock => zklock_sql(q{'/bench/w2/' || :k}, $any),
		advisory => advisory_sql(':k', $any),
		'advisory-named' => advisory_sql(q{hashtextextended('/bench/w2/' || :k, 0)}, $any),
		table => table_sql(q{'w2/' || :k}, $any) },
	W2back => { zklock => zklock_sql(q{'/bench/w2back/' || :k}, $any) },
	W2s => { zklock => zklock_sql(q{'/bench/w2s/' || :k}, $any) },
	W2c => {
		zklock => zklock_sql(q{'/bench/w2c/' || :k}, $new),
		advisory => advisory_sql(':k', $new),
		table => table_sql(q{'w2c/' || :k}, $new, q{INSERT INTO lock VALUES ('w2c/' || :k) ON CONFLICT DO NOTHING}) },
	W3 => {
		zklock => zklock_sql(q{'/bench/w3'}),
		advisory => advisory_sql(3),
		table => table_sql(q{'w3'}) },
	W4 => { zklock => zklock_sql(q{'/bench/w4'}) },
	W5 => {
		zklock => read_or_write('',
			read => q{zk_read_lock_acquire('/bench/w5')}, read_end => q{zk_read_lock_release('/bench/w5')},
			write => q{zk_write_lock_acquire('/bench/w5')}, write_end => q{zk_write_lock_release('/bench/w5')}),
		advisory => read_or_write('',
			read => 'pg_advisory_lock_shared(5)', read_end => 'pg_advisory_unlock_shared(5)',
			write => 'pg_advisory_lock(5)', write_end => 'pg_advisory_unlock(5)') },
	W6 => { zklock => acquire_release(q{SELECT zk_semaphore_acquire('/bench/w6', 8)}, q{SELECT zk_semaphore_release('/bench/w6')}) });

sub sql_of
{
	my ($w, $system) = @_;
	my $of = $sql{ $w->{family} };
	return $of->{$system} // $of->{ base_of($system) };
}

sub script_of
{
	my ($w, $system, $section) = @_;
	my $sql = sql_of($w, $system) or return;
	return ($sql->{set} // '') . $sql->{before} . ($section // '') . ($sql->{after} // '');
}

# Does the lock exclude?  Before it is measured, every client does some rounds that count,
# with nothing that protects the counting but the lock.
sub check_sql
{
	my ($w, $system) = @_;
	my $transactions = $is_short ? 5 : 100;
	my ($section, $expected);

	if ($w->{family} eq 'W6')
	{
		$section = "SELECT bench_enter(8);\n";
		$expected = '';
	}
	else
	{
		put_counter("0\n");
		$section = "SELECT bench_section('$counter_file');\n";
		$section = "SELECT nextval('written');\n$section" if $w->{family} eq 'W5';
	}
	my $written = psql(0, 'SELECT last_value FROM written');
	my $result = pgbench(script_of($w, $system, $section),
		servers => $w->{servers}, clients => $w->{clients}, transactions => $transactions);
	return if defined $expected;

	my $count = get_counter();
	$expected =
	  $w->{family} eq 'W5' ? psql(0, 'SELECT last_value FROM written') - $written : $result->{done};
	complain("$w->{id} $system: counted $count in $expected rounds") if $count != $expected;
	return;
}

sub put_counter { my ($text) = @_; open my $f, '>', $counter_file or die $!; print $f $text; close $f; return; }
sub get_counter { open my $f, '<', $counter_file or die $!; my $n = <$f>; chomp $n; return $n; }

sub complain { my ($what) = @_; print "PROBLEM: $what\n"; $problems++; return; }

# --- one measurement ------------------------------------------------------------

sub measure_sql
{
	my ($w, $system, $time) = @_;
	my @limit = $time < 1 ? (transactions => 10) : (seconds => int($time + 0.5));
	return pgbench(script_of($w, $system), servers => $w->{servers}, clients => $w->{clients},
		first => $w->{first}, start_up => start_up_time($w), @limit);
}

sub measure_lines
{
	my ($w, $system, $time) = @_;
	my %kind = (W5 => 'rw', W6 => 'semaphore', W7 => 'try', W11 => 'try');
	my %number = (W0 => 1000, W2 => 1000, W2first => 1000, W2back => 1000, W2s => 1000, W2c => 0, W5 => 95, W6 => 8);
	my $kind = $kind{ $w->{family} } // 'mutex';
	my $path = lc "/bench-@{[base_of($system)]}/" . ($w->{path} // $w->{family});
	my $line = "$kind $w->{clients} $time $path";

	$path = $line = "$kind $w->{clients} $time /zklock/bench/" . lc $w->{id} if $kind eq 'try';
	if ($kind ne 'try')
	{
		put_counter(pack 'q', 0);
		$line .= ' ' . ($number{ $w->{family} } // 1) . ' ' . ($w->{is_contended} ? $counter_file : '-') . ' ' . form_of($system);
	}

	my @processes = map { process_of($system, $_) } 0 .. $w->{servers} - 1;
	send_to($_, $line) foreach @processes;
	my %result = (rate => 0, done => 0, counts => []);
	foreach my $i (0 .. $#processes)
	{
		my ($elapsed, @counts) = answer_of($processes[$i]);
		foreach my $n (@counts)
		{
			$result{done} += $n;
			$result{server}[$i] += $n;
		}
		$result{rate} += $result{server}[$i] / $elapsed;
		push @{ $result{counts} }, @counts;
	}
	check_counter($w, $system, $result{done}) if $w->{is_contended} && $kind eq 'mutex';
	return \%result;
}

sub check_counter
{
	my ($w, $system, $done) = @_;
	open my $f, '<', $counter_file or die $!;
	read $f, my $bytes, 8;
	my $count = unpack 'q', $bytes;
	complain("$w->{id} $system: counted $count in $done rounds") if $count != $done;
	return;
}

# How long pgbench works before it is measured, in the same run: while another one connected,
# tickets would cease to linger.  Each of its backends is new and loads catalogs at first, while
# the other systems' processes stay from one round to the next.  In W2, each of 1,000 locks is to
# linger, and ZooKeeper may need some seconds to write them.
sub start_up_time
{
	my ($w) = @_;
	return $w->{family} eq 'W2first' ? 0 : $w->{family} =~ /^W2s?$/ ? max(4, 2 * $seconds) : 3;
}

sub warm_up_time
{
	my ($w, $round) = @_;
	return $w->{family} =~ /^W2s?$/ ? start_up_time($w) : $seconds * ($round == 1 ? 1 : 0.3);
}

sub measure_rate
{
	my ($w, $system, $round) = @_;
	my $is_sql = defined sql_of($w, $system);
	my $once = sub { return $is_sql ? measure_sql($w, $system, @_) : measure_lines($w, $system, @_); };

	check_sql($w, $system) if $round == 1 && $is_sql && $w->{is_contended};
	$once->(warm_up_time($w, $round)) unless $is_sql || $is_short || $w->{family} eq 'W2first';

	my ($packets, $begin, %cpu) = (packets(), time, cpu_times());
	my $r = $once->($seconds);
	$packets = packets() - $packets - $packets_at_rest * (time - $begin);
	my %spent = cpu_times();
	my $each = sub { my ($of) = @_; return $r->{done} ? ($spent{$of} - $cpu{$of}) / $r->{done} : undef; };
	my @order = sort { $a <=> $b } @{ $r->{counts} };
	my @servers = sort { $a <=> $b } @{ $r->{server} };

	record($w->{id}, $system, $round,
		rate => $r->{rate},
		requests => Workloads::asks_zookeeper($system) && $r->{done} ? ($packets > 0 ? $packets : 0) / $r->{done} : undef,
		zookeeper_us => Workloads::asks_zookeeper($system) ? $each->('zookeeper') : undef,
		postgres_us => $is_sql ? $each->('postgres') : undef,
		fairness => $w->{is_contended} ? $order[-1] / ($order[0] || 1) : undef,
		least_share => @servers > 1 ? $servers[0] * @servers / ($r->{done} || 1) : undef);
	return $r->{rate};
}

# A server gives the lock up as soon as it knows that others queue.
sub measure_turns
{
	return measure_without('zklock.tenure', @_);
}

# No ticket lingers, so each lock needs a new one.
sub measure_back
{
	my ($w, $system, $round) = @_;
	return $system eq 'zklock' ? measure_without('zklock.linger', @_) : measure_rate(@_);
}

# Each round has new paths, and nothing is done before.
sub measure_first
{
	my ($w, $system, $round) = @_;
	my $path = "w2first-$ensemble-$round";
	$sql{W2first} = { zklock => zklock_sql("'/bench/$path/' || :k", $any) };
	return measure_rate({ %$w, path => $path }, $system, $round);
}

sub measure_without
{
	my ($setting, @measurement) = @_;
	alter($setting, "SET $setting = 0", 'setting = \'0\'');
	my $rate = eval { measure_rate(@measurement) };
	my $error = $@;
	alter($setting, "RESET $setting", 'setting = boot_val');
	die $error unless defined $rate;
	return $rate;
}

sub alter
{
	my ($setting, $change, $is_done) = @_;
	foreach my $i (0 .. $#ports)
	{
		psql($i, "ALTER SYSTEM $change");
		psql($i, 'SELECT pg_reload_conf()');
		usleep(10_000) until psql($i, "SELECT $is_done FROM pg_settings WHERE name = '$setting'") eq 't';
	}
	return;
}

sub record_times
{
	my ($w, $system, $round, @us) = @_;
	@us = sort { $a <=> $b } @us;
	die "$w->{id} $system: no handover\n" unless @us;
	my %time = map { ("p${_}_us" => $us[ int($_ / 100 * $#us + 0.5) ]) } 50, 99;
	record($w->{id}, $system, $round, %time, handovers => scalar @us);
	return $time{p50_us};
}

sub sql_handover
{
	my ($mode, $waiters, $path, $time) = @_;
	my $line = qx($bench/sql_handover $mode $time $path $waiters "@{[conninfo(0)]}" "@{[conninfo(1)]}");
	my ($is_ok, undef, @us) = split ' ', $line;
	die "sql_handover: $line\n" unless $is_ok eq 'ok' && $? == 0;
	return @us;
}

# --- the workloads that are not a loop ------------------------------------------

# Tries against a lock that another server, or a foreign client, holds.
sub measure_try
{
	my ($w, $system, $round) = @_;
	my $path = '/bench/' . lc $w->{id};
	my $holder;

	if ($w->{queue})
	{
		ask(process_of('zookeeper', 0), "queue $w->{queue} /zklock$path");
	}
	elsif ($system eq 'zklock')
	{
		$holder = open_session(1);
		session_query($holder, "SELECT zk_lock_acquire('$path')");
	}
	else
	{
		ask(process_of($system, 1), "hold /zklock$path");
	}
	$sql{ $w->{family} }{zklock} = { before => "SELECT zk_lock_acquire('$path', '0') AS got \\gset\n"
		  . "\\if :got\nSELECT 1/0;\n\\endif\n" };
	my $rate = measure_rate($w, $system, $round);

	if ($w->{queue}) { ask(process_of('zookeeper', 0), "unqueue /zklock$path"); }
	elsif ($holder) { close_session($holder); }
	else { ask(process_of($system, 1), "drop /zklock$path"); }
	return $rate;
}

sub measure_handover
{
	my ($w, $system, $round) = @_;
	my $once = sub {
		my ($time) = @_;
		return sql_handover($w->{id} eq 'W8linger' ? 'linger' : 'queue', $w->{crowd} // 0, '/bench/' . lc $w->{id}, $time)
		  if $system eq 'zklock';
		my (undef, @us) = ask(process_of($system, 0), "handover $time /bench-" . lc $system . '/w8');
		return @us;
	};

	$once->($seconds / 2) unless $is_short || $round > 1;
	my @us = $once->($w->{crowd} && !$is_short ? 2 * $seconds : $seconds);
	wait_for_backends_to_end();
	return record_times($w, $system, $round, @us);
}

# One backend acquires many locks in one call.
sub measure_multilock
{
	my ($w, $system, $round) = @_;
	my $n = $is_short ? 50 : $w->{locks};
	my $is_new = $w->{id} =~ /new/;
	my $s = open_session(0);
	my @us;

	foreach my $i (0 .. 5)
	{
		my $base = "/bench/multi-$ensemble" . ($is_new ? "-$round-$i" : '');
		my $paths = "(SELECT array_agg('$base/' || i) FROM generate_series(1, $n) AS i)";
		my $begin = time;
		session_query($s, "SELECT zk_multilock_acquire($paths)");
		push @us, 1e6 * (time - $begin) if $i > 0;
		session_query($s, "SELECT zk_multilock_release($paths)");
		usleep(20_000) until psql(0, "SELECT count(*) = 0 FROM zk_locks WHERE path LIKE '$base/%'") eq 't';
	}
	close_session($s);
	return record_times($w, $system, $round, @us);
}

# A thousand of them need a while, and the next measurement shall not share the processors
# with them.
sub wait_for_backends_to_end
{
	foreach my $i (0 .. $#ports)
	{
		usleep(20_000) until psql($i, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'client backend'}) eq 't';
	}
	return;
}

# Instructions of a transaction, as valgrind counts them: with noise that a clock cannot
# tell from nothing, it is the only figure that says something here.
my @tpcb = (
	'UPDATE pgbench_accounts SET abalance = abalance + %3$d WHERE aid = %1$d;',
	'SELECT abalance FROM pgbench_accounts WHERE aid = %1$d;',
	'UPDATE pgbench_tellers SET tbalance = tbalance + %3$d WHERE tid = %2$d;',
	'UPDATE pgbench_branches SET bbalance = bbalance + %3$d WHERE bid = 1;',
	'INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (%2$d, 1, %1$d, %3$d, CURRENT_TIMESTAMP);');

sub instructions_of
{
	my ($data, $preload, $transactions) = @_;
	my $file = "$bench/tpcb.sql";
	open my $f, '>', $file or die $!;
	foreach my $i (1 .. $transactions)
	{
		print $f "BEGIN;\n";
		printf $f "$_\n", 1 + $i * 7919 % 100000, 1 + $i % 10, $i foreach @tpcb;
		print $f "END;\n";
	}
	close $f;

	# Every run begins with the same files.
	system("rm -rf $data.run && cp -a $data $data.run") == 0 or die 'cp';
	my $log = qx(valgrind --tool=callgrind --callgrind-out-file=/dev/null postgres --single -D $data.run \\
		-c shared_preload_libraries=$preload -c fsync=off -c zklock.hosts=127.0.0.1:1 postgres <$file 2>&1 >/dev/null);
	system("rm -rf $data.run");
	my ($n) = $log =~ /Collected : (\d+)/ or die "valgrind: $log";
	return $n;
}

# A cluster that no server runs, with the tables of TPC-B.
sub tpcb_data
{
	my $data = "$bench/tpcb";
	unless (-d $data)
	{
		my $port = 7000;
		system("initdb -D $data -U postgres -A trust -N --no-instructions >/dev/null"
			  . " && cat $arg{stage} >>$data/postgresql.conf"
			  . " && pg_ctl -D $data -w -l $bench/tpcb.log -o \"-k $bench -p $port -c listen_addresses='' -c fsync=off\" start >/dev/null"
			  . " && pgbench -i -q -h $bench -p $port -U postgres postgres >/dev/null 2>&1"
			  . " && psql -h $bench -p $port -U postgres -qc 'VACUUM (FREEZE)' postgres"
			  . " && pg_ctl -D $data -m fast -w stop >/dev/null") == 0 or die 'TPC-B';
	}
	return $data;
}

sub measure_tpcb
{
	my ($w, $system, $round) = @_;
	my $data = tpcb_data();
	my $preload = $system eq 'zklock' ? 'zklock' : "''";
	my ($few, $many) = $is_short ? (0, 20) : (100, 300);
	my $begin = $is_short ? 0 : instructions_of($data, $preload, $few);
	my $n = (instructions_of($data, $preload, $many) - $begin) / ($many - $few);
	record($w->{id}, $system, $round, instructions => $n);
	return $n;
}

# How fast a lock is that is none of those held, in proportion to one
# of PostgreSQL's own, next to it in time: the median of three.
sub w1_of
{
	my ($server) = @_;
	my $w1 = { %{ $Workloads::by_id{W1} }, first => $server };
	my @ratios;
	foreach (1 .. ($is_short ? 1 : 3))
	{
		my %rate = map { $_ => measure_sql($w1, $_, $seconds)->{rate} } qw(zklock advisory);
		push @ratios, $rate{zklock} / $rate{advisory};
	}
	return (sort { $a <=> $b } @ratios)[ $#ratios / 2 ];
}

# 8,000 locks in one session: does one more cost the same, and what do they cost at rest?
sub measure_many
{
	my ($w, $system, $round) = @_;
	my $n = $is_short ? 500 : 8000;
	my $memory = 'SELECT sum(total_bytes) FROM pg_backend_memory_contexts';

	w1_of(0) unless $is_short;
	my %value = (without => w1_of(0));

	my $holder = open_session(0);
	session_query($holder, "SELECT zk_lock_acquire('/bench/w10/first')");
	my $before = session_query($holder, $memory);
	my $begin = time;
	session_query($holder, "SELECT count(*) FROM (SELECT zk_lock_acquire('/bench/w10/' || i) FROM generate_series(1, $n) AS i) AS a");
	$value{rate} = $n / (time - $begin);
	$value{backend_bytes} = (session_query($holder, $memory) - $before) / $n;
	$value{shared_bytes} = (shared_megabytes(110_000) - shared_megabytes(10_000)) * 1024 * 1024 / 100_000;
	$value{ephemeral_bytes} = psql(0, 'SELECT ephemeral_bytes FROM zk_status');

	$value{worker_cpu_percent} = worker_cpu_percent(0);
	$value{with} = w1_of(0);
	complain('W10: not all are held') if psql(0, q{SELECT count(*) FROM zk_locks WHERE granted}) < $n;

	unless ($is_short)
	{
		# until it is refused
		my $held = session_query($holder, q{DO $$ BEGIN FOR i IN 1 .. 3000 LOOP PERFORM zk_lock_acquire('/bench/w10/more-' || i);
			END LOOP; EXCEPTION WHEN configuration_limit_exceeded THEN NULL; END $$}
			  . "; SELECT ephemeral_bytes <= 900000 AND ephemeral_bytes > 800000 FROM zk_status");
		$value{cap_respected} = $held =~ /^t/ ? 1 : 0;
		complain('W10: the cap is not respected') unless $value{cap_respected};
	}
	$begin = time;
	close_session($holder);
	usleep(20_000) until psql(0, q{SELECT count(*) = 0 FROM zk_locks WHERE path LIKE '/bench/w10/%'}) eq 't' || time > $begin + 60;
	$value{release_all_seconds} = time - $begin;
	record($w->{id}, $system, $round, %value);
	return $value{rate};
}

# So many claims wait for one lock: their memory, what they cost at rest, and how long after the release
# of one the wait for the next one returns.
sub measure_claims
{
	my ($w, $system, $round) = @_;
	my $n = $is_short ? 500 : $w->{claims};
	my ($releases, $waits) = map { open_session(0) } 1 .. 2;
	my $path = '/bench/' . lc $w->{id};
	my $claims = session_query($releases, "SELECT zk_claim_request('$path', '1 h') FROM generate_series(0, $n)");
	my ($held, @claims) = split /\n/, $claims;
	session_query($waits, "SELECT zk_claim_wait('$held')");

	my $owner = psql(0, q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'zklock claims'});
	my $rest = $is_short ? 0.2 : 5;
	my %value = (worker_cpu_percent => worker_cpu_percent(0), owner_cpu_percent => -100 * cpu_of($owner) / $rest);
	usleep(1e6 * $rest);
	$value{owner_cpu_percent} += 100 * cpu_of($owner) / $rest;
	$value{shared_bytes} = psql(0, q{SELECT sum(size) / current_setting('zklock.max_locks')::int FROM pg_shmem_allocations
		WHERE name IN ('zklock detached claims', 'zklock claims')});
	record($w->{id}, $system, $round, %value);

	my @us;
	foreach my $claim (@claims[ 0 .. ($is_short ? 10 : 300) ])
	{
		print { $waits->{in} } "SELECT zk_claim_wait('$claim');\n\\echo end\n";
		$waits->{in}->flush;
		usleep(500) until psql(0, "SELECT waiting_pid IS NOT NULL FROM zk_claims WHERE claim = '$claim'") eq 't';
		my $begin = time;
		print { $releases->{in} } "SELECT zk_claim_release('$held');\n\\echo end\n";
		$releases->{in}->flush;
		readline($waits->{out}) eq "t\n" or die "not granted\n";
		push @us, 1e6 * (time - $begin);
		readline $waits->{out};
		readline $releases->{out} foreach 1 .. 2;
		$held = $claim;
	}
	session_query($releases, q{SELECT count(zk_claim_release(claim)) FROM zk_claims});
	close_session($_) foreach $releases, $waits;
	return record_times($w, $system, $round, @us);
}

sub worker_cpu_percent
{
	my ($server) = @_;
	my $worker = psql($server, 'SELECT worker_pid FROM zk_status');
	my $rest = $is_short ? 0.2 : 5;
	my $before = cpu_of($worker);
	usleep(1e6 * $rest);
	return 100 * (cpu_of($worker) - $before) / $rest;
}

sub shared_megabytes
{
	my ($max_locks) = @_;
	my $data = tpcb_data();
	return qx(postgres -D $data -c shared_preload_libraries=zklock -c max_locks_per_transaction=2000 -c zklock.max_locks=$max_locks -C shared_memory_size);
}

sub cpu_of
{
	my ($pid) = @_;
	open my $f, '<', "/proc/$pid/stat" or die $!;
	my ($rest) = <$f> =~ /\) (.*)/;
	my @field = split ' ', $rest;
	return ($field[11] + $field[12]) / 100;
}

my %how = (
	W2back => \&measure_back,
	W2first => \&measure_first,
	W2multi => \&measure_multilock,
	W7 => sub { my ($w) = @_; return $w->{crowd} ? measure_handover(@_) : measure_try(@_); },
	W8 => \&measure_handover,
	W9 => \&measure_tpcb,
	W10 => \&measure_many,
	W11 => \&measure_try,
	W12 => sub { my ($w) = @_; return $w->{claims} ? measure_claims(@_) : measure_rate(@_); });

# --- all of it ------------------------------------------------------------------

my @wanted = split ' ', $arg{workloads};
my @todo = grep { my $w = $_; !@wanted || grep { $_ eq $w->{id} || $_ eq $w->{family} } @wanted } @Workloads::all;

# A JVM compiles while it runs, so ZooKeeper and Curator begin slowly: before anything is
# measured, they do all that they will have to do.
sub warm_up
{
	my $time = $is_short ? 0.1 : 6;
	ask(process_of('zookeeper', 0), "mutex 64 @{[2 * $time]} /bench-zookeeper/w0 1000 - sessions");
	return unless grep { my $w = $_; grep { $_ eq 'Curator' } @{ $w->{systems} } } @todo;

	my @curators = map { process_of('Curator', $_) } 0 .. 2;
	foreach my $what ('mutex 16 T /bench-curator/w2 1000', 'mutex 16 T /bench-curator/warm/mutex 1',
		'rw 16 T /bench-curator/warm/rw 95', 'semaphore 16 T /bench-curator/warm/semaphore 8')
	{
		send_to($_, $what =~ s/T/$time/r . ' - -') foreach @curators;
		answer_of($_) foreach @curators;
	}
	return;
}

# The machine and the versions on which the figures depend.
sub record_machine
{
	my %version = (
		PostgreSQL => psql(0, 'SHOW server_version'),
		ZooKeeper => answer_to($zookeepers[0], 'srvr'),
		Curator => join(' ', glob '/usr/share/java/curator-recipes-*.jar'),
		kazoo => scalar qx(/usr/bin/python3 -c 'import kazoo.version; print(kazoo.version.__version__)'),
		Redis => scalar qx(redis-server --version));
	foreach my $system (sort keys %version)
	{
		record('machine', $system, 0, version => $version{$system} =~ /(\d+(?:\.\d+)+)/ ? $1 : '?');
	}
	record('machine', 'run', 0, processors => qx(nproc) + 0, sync_us => sync_us(), rounds => $arg{rounds}, seconds => $seconds);
	return;
}

# How long ZooKeeper's disk needs to sync a small write: the median of 100.
sub sync_us
{
	my @us;
	open my $f, '>', "$bench/sync" or die $!;
	foreach (1 .. 100)
	{
		my $begin = time;
		syswrite $f, 'x' x 500;
		$f->sync;
		push @us, 1e6 * (time - $begin);
	}
	return (sort { $a <=> $b } @us)[50];
}

warm_up();
foreach my $i (0 .. $#ports)
{
	usleep(50_000) until psql($i, q{SELECT state IN ('connected', 'idle') AND safe FROM zk_status}) eq 't';
}
record_machine();
measure_rest();

foreach my $w (@todo)
{
	next if $is_short && $w->{only_long};
	my @systems = Workloads::measured($w, $ensemble) or next;
	printf "%-9s %s\n", $w->{id}, $w->{title};
	foreach my $round (1 .. ($w->{family} =~ /^W(9|10)$/ ? 1 : $arg{rounds}))
	{
		foreach my $system (@systems)
		{
			my $measure = $system eq 'zklock-turns' ? \&measure_turns : $how{ $w->{family} } // \&measure_rate;
			my $value = eval { $measure->($w, $system, $round) };
			complain("$w->{id} $system: $@") unless defined $value;
			printf "          %d %-36s %12.1f %s\n", $round, $Workloads::name{$system}, $value, $w->{of} if defined $value;
		}
		push @systems, shift @systems;
	}
}
exit($problems ? 1 : 0);
