
# Two servers at work with all kinds of locks on thousands of paths, which reconnect, lose
# their sessions, and get new workers: memory, entries, handles, znodes and watches stay
# bounded.  For some seconds, or for as many hours as "make soak HOURS=n" says.

use strict;
use warnings;

use Time::HiRes qw(time usleep);

use HoldingProxy;
use Soak;
use ZklockTest;

my $seconds = ($ENV{SOAK_HOURS} // 0) * 3600 || 14;
my $paths = 5000;
my $batch = 10;

# --- the judge ------------------------------------------------------------------------

my @noise = map { ($_ * 7919) % 11 } 1 .. 90;
sub line { my ($f) = @_; return [ map { $f->($_) + $noise[$_] } 0 .. 89 ]; }
foreach my $case (
	[ 1, 'level', sub { 100 } ],
	[ 1, 'that falls', sub { 300 - $_[0] } ],
	[ 1, 'that warms up', sub { $_[0] < 30 ? 10 * $_[0] : 300 } ],
	[ 1, 'with spikes', sub { $_[0] % 10 ? 100 : 5000 } ],
	[ 1, 'with spikes at the end', sub { $_[0] < 80 ? 100 : 5000 } ],
	[ 1, 'like a saw', sub { 100 + $_[0] % 15 } ],
	[ '', 'that leaks', sub { 100 + $_[0] } ],
	[ '', 'that leaks slowly', sub { 100 + $_[0] / 2 } ],
	[ '', 'that leaks in steps', sub { 100 + 30 * int($_[0] / 30) } ],
	[ '', 'that leaks under spikes', sub { 100 + $_[0] + ($_[0] % 10 ? 0 : 5000) } ],
	[ '', 'like a saw that leaks', sub { 100 + $_[0] % 15 + $_[0] } ],
	[ '', 'that begins to leak late', sub { $_[0] < 60 ? 100 : 2 * $_[0] } ])
{
	my ($is_flat, $what, $f) = @$case;
	is(Soak::is_flat(line($f), 0.05, 5), $is_flat, "a line $what is " . ($is_flat ? '' : 'not ') . 'flat');
}
is(Soak::is_flat([ 1 .. 8 ], 1, 1000), '', 'a line of a few samples says nothing');
my $leaking = Soak->new(level => [ 0.05, 5 ], leak => [ 0.05, 5 ]);
$leaking->note(level => 100 + $noise[$_], leak => 100 + $_) foreach 0 .. 89;
is_deeply([ $leaking->growing ], ['leak'], 'the leaking line is found');
like($leaking->report, qr/^level .* flat .*\nleak .* GROWS /m, 'and reported');

# --- the servers --------------------------------------------------------------------------

# Empty directories must go as fast as they come.
my $zk = ZooKeeper->new(
	java_opts => '-Dznode.container.checkIntervalMs=500 -Dznode.container.maxPerMinute=100000');
my $proxy = HoldingProxy->new($zk->hosts);
my %settings = ('zklock.session_timeout' => '4s', 'zklock.connection_timeout' => '30s', 'zklock.linger' => '50ms');
my $node_a = ZklockNode->started('a', undef, %settings, 'zklock.hosts' => $proxy->address);
my $node_b = ZklockNode->started('b', $zk, %settings);
my @nodes = ($node_a, $node_b);

# Some locks of each kind.  Every fourth path is one that all backends want.
foreach my $node (@nodes)
{
	$node->safe_psql('postgres', <<'END');
		CREATE TABLE t (n int);
		CREATE FUNCTION pick(kind text, paths int) RETURNS text LANGUAGE sql VOLATILE AS $$
			SELECT '/soak/' || kind || CASE WHEN random() < 0.25 THEN '' ELSE (random() * paths)::int::text END;
		$$;
		CREATE PROCEDURE one_round(paths int) LANGUAGE plpgsql AS $$
		DECLARE
			path text;
			what int := random() * 9;
			timeout interval := CASE (random() * 3)::int WHEN 0 THEN '0' WHEN 1 THEN '5ms' ELSE '2s' END;
		BEGIN
			IF what = 0 THEN
				PERFORM zk_xact_lock_acquire(pick('mutex', paths), timeout);
				INSERT INTO t VALUES (1);
			ELSIF what = 1 THEN
				PERFORM zk_read_lock_acquire(pick('rw', paths), timeout);
			ELSIF what = 2 THEN
				path := pick('rw', paths);
				IF zk_write_lock_acquire(path, timeout) AND zk_read_lock_acquire(path) THEN
					PERFORM zk_write_lock_release(path);
				END IF;
			ELSIF what = 3 THEN
				PERFORM zk_semaphore_acquire(pick('semaphore', paths), 3, timeout, 2);
			ELSIF what = 4 THEN
				PERFORM zk_multilock_acquire(ARRAY[pick('mutex', paths), pick('mutex', paths), pick('mutex', paths)], timeout);
			ELSIF what = 5 THEN
				PERFORM zk_lock_acquire(pick('mutex', paths), timeout, '1s');
			ELSIF what = 6 THEN
				BEGIN
					PERFORM zk_xact_lock_acquire(pick('mutex', paths), timeout);
					RAISE division_by_zero;
				EXCEPTION
					WHEN division_by_zero THEN NULL;
				END;
			ELSIF what = 7 THEN
				PERFORM zk_lock_queue('/soak/mutex');
				PERFORM zk_fence('soak', 1);
			ELSE
				path := pick('mutex', paths);
				PERFORM zk_lock_acquire(path, timeout);
				PERFORM zk_lock_revoke(path);
			END IF;
			PERFORM zk_lock_release_all();
			COMMIT;
		END $$;
		CREATE PROCEDURE some_rounds(n int, paths int) LANGUAGE plpgsql AS $$
		BEGIN
			FOR i IN 1 .. n LOOP
				CALL one_round(paths);
			END LOOP;
		END $$;
END
}

# Backends that live as long as the test.
# In the long form with pauses, so that the machine can do something else, too.
my $pause = $ENV{SOAK_HOURS} ? 0.3 : 0;
my $work = "CALL some_rounds($batch, $paths); SELECT pg_sleep($pause)";

# Backends that hold a hundred locks for longer, or until they lose them.
my $hold = "SELECT zk_lock_acquire('/soak/held' || (random() * $paths)::int, '0') FROM generate_series(1, 100);"
  . 'SELECT pg_sleep(1); SELECT zk_lock_release_all()';
my @workers = map {
	my $node = $_;
	map { { node => $node, backend => $node->backend, sql => $_ } } $work, $work, $work, $hold
} @nodes;
my ($rounds, %errors) = (0);
sub work
{
	my ($go_on) = @_;
	foreach my $w (grep { !$_->{sent} || $_->{backend}->is_done } @workers)
	{
		if (delete $w->{sent})
		{
			my $result = $w->{backend}->result;
			$errors{ $result->{errcode} }++;
			$rounds += $batch if $w->{sql} eq $work && !$result->{errcode};
			$w->{backend}->run('ROLLBACK; SELECT zk_lock_release_all()') if $result->{errcode};
		}
		next unless $go_on;
		$w->{backend}->send("SET client_min_messages = error; $w->{sql}");
		$w->{sent} = 1;
	}
	return grep { $_->{sent} } @workers;
}

# --- what is measured -----------------------------------------------------------------------

sub memory
{
	my ($pid) = @_;
	my ($kb) = (eval { slurp_file("/proc/$pid/status") } // '') =~ /^RssAnon:\s+(\d+)/m;
	return $kb;
}

# The tolerances: what the allocators of a process may do, and how much the load differs from one
# time to another.
my @of_node = (worker_kB => [ 0.05, 256 ], backend_kB => [ 0.05, 256 ], worker_fds => [ 0, 3 ], entries => [ 0.5, 150 ], bytes => [ 0.5, 15000 ]);
my @of_zk = (znode_count => [ 0.5, 500 ], watch_count => [ 0.5, 300 ], ephemerals_count => [ 0.5, 300 ], num_alive_connections => [ 0, 1 ]);
my $soak = Soak->new(
	(map { my $name = $_->name; map { ref ? $_ : "$name: $_" } @of_node } @nodes),
	map { ref ? $_ : "ZooKeeper: $_" } @of_zk);

sub sample
{
	my %sample;
	foreach my $node (@nodes)
	{
		my $name = $node->name;
		my ($backend) = grep { $_->{node} == $node } @workers;
		my ($pid, $entries, $bytes) = split /\|/, $node->status('worker_pid, entries, ephemeral_bytes');
		my @fds = $pid ? glob "/proc/$pid/fd/*" : ();
		$sample{"$name: worker_kB"} = $pid ? memory($pid) : undef;
		$sample{"$name: backend_kB"} = memory($backend->{backend}->pid);
		$sample{"$name: worker_fds"} = @fds ? scalar @fds : undef;
		$sample{"$name: entries"} = $entries;
		$sample{"$name: bytes"} = $bytes;
	}
	my $mntr = $zk->cmd('mntr');
	($sample{"ZooKeeper: $_"}) = $mntr =~ /^zk_$_\s+(\d+)/m foreach grep { !ref } @of_zk;
	$soak->note(%sample);
	return;
}

# --- the soak ----------------------------------------------------------------------------------

# One after the other, several times or once a minute.  The worker of a stays the same.
my @disturbances = (
	sub { $proxy->cut },
	sub { $node_b->expire_session($zk, by_hand => 1) },
	sub { $node_b->safe_psql('postgres', 'SELECT pg_terminate_backend(worker_pid) FROM zk_status') },
	sub { $node_a->expire_session($zk, by_hand => 1) });
my $begin = time;
my $every = $seconds / 8 < 60 ? $seconds / 8 : 60;
my $sample_every = $seconds / 30 < 5 ? $seconds / 30 : 5;
my ($disturb_at, $sample_at, $disturbed, $samples) = ($begin + $every, $begin, 0, 0);

# A slow machine takes longer for the load that is checked below.
sub is_enough { return $samples >= 20 && $disturbed >= @disturbances && $rounds > 10 * $seconds; }
my $patience = $begin + $seconds + $PostgreSQL::Test::Utils::timeout_default;
while (time < $begin + $seconds || (!is_enough() && time < $patience))
{
	work(1);
	if (time >= $sample_at)
	{
		sample();
		$samples++;
		$sample_at = time + $sample_every;
	}
	if (time >= $disturb_at)
	{
		$disturbances[ $disturbed++ % @disturbances ]->();
		$disturb_at = time + $every;
	}
	usleep(10_000);
}
usleep(10_000) while work(0);

my $report = sprintf("%d rounds in %d s, %d disturbances; errors: %s\n",
	$rounds, time - $begin, $disturbed, join ' ', map { "$_=$errors{$_}" } grep { $_ } sort keys %errors)
  . $soak->report;
note $report;
append_to_file("$ENV{LAB}/out/soak", $report) if $ENV{SOAK_HOURS};

is_deeply([ $soak->growing ], [], 'all lines are flat');
cmp_ok($rounds, '>', 10 * $seconds, 'much was done');
cmp_ok($disturbed, '>=', @disturbances, 'and disturbed');
is_deeply([ grep { !/^(|ZK00[12]|08006|57014|55000)$/ } keys %errors ], [], 'only errors that are to be expected');

# --- nothing is left -----------------------------------------------------------------------------

$_->wait_until('SELECT count(*) = 0 FROM zk_locks') foreach @nodes;
$_->wait_until('SELECT entries = 0 AND ephemeral_bytes = 0 FROM zk_status') foreach @nodes;

# ZooKeeper never removes a directory that was made by a session that ended before it used it.  A session makes
# at most three at a time for each backend, for a multilock.
my $unused = 3 * @workers / @nodes * $disturbed;
my $left;
eval { $zk->wait_until(sub { $left = $zk->tree('/zklock'); @$left <= $unused }, 'directories to go') };
is($@, '', "at most $unused directories are left") or diag(scalar(@$left) . " are left:\n", join "\n", @$left);
is_deeply([ grep { /__|lock-|lease-/ } @$left ], [], 'no znode and no entry is left');
$_->quit foreach map { $_->{backend} } @workers;
foreach my $node (@nodes)
{
	$node->stop;
	unlike(slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal/, $node->name . ': a quiet log');
}

done_testing();
