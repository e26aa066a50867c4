
# How long a lock takes beside a role that does as much as it can of one thing.  One backend of
# another role, the victim, acquires and releases a lock that its server keeps, and locks on new
# paths.  It does so alone, beside backends that keep the processors busy with plain SQL, and beside
# as many backends that abuse zklock, in turns.
#
# In short, this test shows that each kind of abuse is one, and does not stop the victim.  It checks
# no time.  "make abuse" sets ABUSE_SECONDS, for each kind of abuse, and prints a table.

use strict;
use warnings;

use Time::HiRes qw(time);

use ZklockTest;

my $seconds = $ENV{ABUSE_SECONDS};
my $rounds = $seconds ? 5 : 1;
my $turn = ($seconds // 0.12) / $rounds / 3;
my $backends = 4;
my ($many, $some) = $seconds ? (900, 500) : (20, 10);		# in one call

my $zk = ZooKeeper->new;
my $node = ZklockNode->started('n', $zk,
	'zklock.session_timeout' => '60s',
	'zklock.max_jobs' => 1_000_000,
	'max_connections' => 50,
	'max_locks_per_transaction' => 256);
$node->safe_psql('postgres', <<'END');
	CREATE ROLE abuser LOGIN;
	CREATE ROLE victim LOGIN;
	GRANT pg_signal_backend TO abuser;
	CREATE TABLE going (going boolean);
	INSERT INTO going VALUES (false);
	GRANT SELECT ON going TO PUBLIC;

	-- $1 is a text that is new each time.
	CREATE FUNCTION abuse(work text, OUT done int, OUT refused int) LANGUAGE plpgsql AS $$
	BEGIN
		done := 0;
		refused := 0;
		WHILE (SELECT going FROM going) LOOP
			BEGIN
				EXECUTE work USING format('%s/%s', pg_backend_pid(), nextval('abuses'));
				done := done + 1;
			EXCEPTION WHEN OTHERS THEN
				refused := refused + 1;
			END;
		END LOOP;
	END $$;
	CREATE SEQUENCE abuses;
	GRANT USAGE ON SEQUENCE abuses TO abuser;

	-- A lock that the server keeps takes microseconds, so several count as one.
	CREATE FUNCTION measure(is_new bool, turn interval, OUT n int, OUT refused int, OUT microseconds float8) LANGUAGE plpgsql AS $$
	DECLARE
		stop timestamptz := clock_timestamp() + turn;
		path text := '/victim/kept';
		began timestamptz;
		times float8[] := '{}';
		per int := CASE WHEN is_new THEN 1 ELSE 10 END;
		good bool;
	BEGIN
		refused := 0;
		IF NOT is_new THEN
			-- It may not have come back for a while.
			FOR i IN 1 .. 2 LOOP
				PERFORM zk_lock_acquire(path);
				PERFORM zk_lock_release(path);
			END LOOP;
		END IF;
		WHILE clock_timestamp() < stop OR times = '{}' LOOP
			IF is_new THEN
				path := '/victim/new/' || nextval('victims');
			END IF;
			began := clock_timestamp();
			FOR i IN 1 .. per LOOP
				good := zk_lock_acquire(path);
				good := good AND zk_lock_release(path);
				refused := refused + (NOT good)::int;
			END LOOP;
			times := times || (extract(epoch FROM clock_timestamp() - began) * 1e6 / per)::float8;
		END LOOP;
		n := array_length(times, 1);
		SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY t) INTO microseconds FROM unnest(times) AS t;
	END $$;
	CREATE SEQUENCE victims;
	GRANT USAGE ON SEQUENCE victims TO victim;
END

my $watcher = $node->backend;
my $victim = $node->backend(extra_params => [ '-U', 'victim' ]);
my @abusers = map { $node->backend(extra_params => [ '-U', 'abuser' ]) } 1 .. $backends;
my @holders = map { $node->backend(extra_params => [ '-U', 'abuser' ]) } 1 .. 2;
$victim->query($_) foreach ("SELECT zk_lock_acquire('/victim/kept'), zk_lock_release('/victim/kept')") x 2;

# --- the kinds of abuse -------------------------------------------------------------------------

# No role knows which partition of the table a lock is in, so a role cannot aim at the victim's.
my $crowd = '/abuser/crowd';
my $fill = "SELECT zk_semaphore_acquire('$crowd', 2000, '1min', $many)";
my $foreign = '/abuser/foreign';
sub multilock { my ($paths) = @_; return "SELECT zk_multilock_acquire(p), zk_multilock_release(p) FROM (SELECT array_agg($paths) FROM generate_series(1, $many) AS i) AS a (p)"; }

# What each backend does in a loop, and what other sessions of the role have done before.
my @kinds = (
	[ 'nothing but plain SQL', 'SELECT count(*) FROM generate_series(1, 1000)' ],
	[ 'reads of `zk_locks`, which shows many locks', 'SELECT count(*) FROM zk_locks', $fill ],
	[ 'reads of `zk_stat_locks`', 'SELECT count(*) FROM zk_stat_locks', $fill ],
	[ 'reads of `zk_stat`', 'SELECT count(*) FROM zk_stat', $fill ],
	[ 'calls of `zk_blockers`', 'SELECT count(*) FROM zk_blockers(' . $victim->pid . ')', $fill ],
	[ 'calls of `zk_lock_queue`, for a long queue', "SELECT count(*) FROM zk_lock_queue('$crowd')", $fill ],
	[ 'calls of `zk_waits`', 'SELECT count(*) FROM zk_waits()' ],
	[ 'tries of a lock that another session holds', "SELECT zk_lock_acquire('/abuser/held', '0')", q{SELECT zk_lock_acquire('/abuser/held')} ],
	[ 'tries of a lock that another client holds', "SELECT zk_lock_acquire('$foreign', '0')" ],
	[ 'waits for 10 ms for a lock that another client holds', "SELECT zk_lock_acquire('$foreign', '10ms')" ],
	[ 'locks on new paths', q{SELECT zk_lock_acquire('/abuser/new/' || $1), zk_lock_release('/abuser/new/' || $1)} ],
	[ 'locks on new paths, given up after 1 ms', q{SELECT zk_lock_acquire('/abuser/up/' || $1, '1ms') AND zk_lock_release('/abuser/up/' || $1)} ],
	[ 'locks on new paths of 16 components', q{SELECT zk_lock_acquire(p), zk_lock_release(p) FROM (SELECT '/abuser/' || replace($1, '/', 'x') || repeat('/d', 14)) AS a (p)} ],
	[ 'locks on new paths that linger', q{SELECT zk_lock_acquire(p), zk_lock_release(p), zk_lock_acquire(p), zk_lock_release(p) FROM (SELECT '/abuser/back/' || $1) AS a (p)} ],
	# Each spoils the transaction that it is in.
	[ 'locks that ZooKeeper refuses', q{SELECT zk_lock_acquire(p), zk_lock_release(p), zk_lock_acquire('/abuser/closed') FROM (SELECT '/abuser/shut' || replace($1, '/', 'x')) AS a (p)} ],
	[ 'locks on new paths with a hold limit', q{SELECT zk_lock_acquire('/abuser/limit/' || $1, NULL, '1h'), zk_lock_release('/abuser/limit/' || $1)} ],
	[ "multilocks of $many new paths", multilock(q{'/abuser/multi/' || $1 || '/' || i}) ],
	[ "multilocks of $some long paths that linger", "SELECT zk_multilock_acquire(p), zk_multilock_release(p) FROM (SELECT array_agg('/abuser/long/' || repeat('x', 220) || pg_backend_pid() || '/' || i) FROM generate_series(1, $some) AS i) AS a (p)" ],
	[ "$many leases at once", "SELECT zk_semaphore_acquire('/abuser/leases', 4000, '1min', $many), zk_semaphore_release('/abuser/leases', $many)" ],
	[ 'runs of new jobs', q{SELECT zk_run_once('/abuser/job/' || $1), zk_lock_release('/abuser/job/' || $1)} ],
	[ 'calls of `zk_lock_queue`, for a path above very many locks', "SELECT count(*) FROM zk_lock_queue('/abuser/above')" ],
	[ 'locks on a path above very many locks', q{SELECT zk_lock_acquire('/abuser/above'), zk_lock_release('/abuser/above')} ],
	[ 'requests that a lock be released', "SELECT zk_lock_revoke('/abuser/held')", q{SELECT zk_lock_acquire('/abuser/held')} ]);
$zk->create_many('/zklock/abuser/above', $seconds ? 60_000 : 10_001);
$zk->create('/zklock/abuser/closed');
$zk->allow('/zklock/abuser/closed', 'ra');
$zk->create("/zklock$foreign");
$zk->create("/zklock$foreign/_c_1b4e28ba-2fa1-41d2-883f-0016d3cca427-lock-", ephemeral => 1, sequence => 1);

# Java is slow at first.
$victim->query("SELECT * FROM measure(true, '5 s')") if $seconds;

# --- the turns -----------------------------------------------------------------------------------

sub median { my @sorted = sort { $a <=> $b } @_; return ($sorted[ $#sorted / 2 ] + $sorted[ @sorted / 2 ]) / 2; }

# Medians of both kinds of locks.
sub measure
{
	my ($what) = @_;
	my @medians;
	foreach my $is_new ('false', 'true')
	{
		my ($n, $refused, $microseconds) = split /\|/, $victim->query(sprintf "SELECT * FROM measure($is_new, '%f s')", $turn / 2);
		is($refused, 0, "$what: the victim gets all its locks") if !$seconds || $refused;
		push @medians, $microseconds;
	}
	return \@medians;
}

sub beside
{
	my ($what, $work) = @_;
	$watcher->query('UPDATE going SET going = true');
	$_->send('SELECT * FROM abuse($abuse$' . $work . '$abuse$)') foreach @abusers;
	$node->wait_until("SELECT count(*) = $backends FROM pg_stat_activity WHERE usename = 'abuser' AND state = 'active'");
	my $measured = measure("beside $what");
	$watcher->query('UPDATE going SET going = false');
	my ($per_second, $refused) = (0, 0);
	foreach my $result (map { $_->result } @abusers)
	{
		die $result->{err} if $result->{errcode};
		my @counts = split /\|/, $result->{out};
		$per_second += $counts[0] / $result->{seconds};
		$refused += $counts[1];
	}
	return ($measured, $per_second, $refused);
}

my @table = ("| what $backends backends of one role do | done in a second | a lock that the server keeps | a lock on a new path |", '| --- | --- | --- | --- |');
my ($busy_work) = map { $_->[1] } shift @kinds;
foreach my $kind (@kinds)
{
	my ($what, $work, $prepare) = @$kind;
	my (@alone, @busy, @abused);
	my ($per_second, $refused) = (0, 0);
	foreach my $round (1 .. $rounds)
	{
		if ($seconds)
		{
			push @alone, measure("before $what");
			push @busy, (beside('plain SQL', $busy_work))[0];
		}
		$_->query($prepare) foreach $prepare ? @holders[ 0 .. ($prepare eq $fill) ] : ();
		my @beside = beside($what, $work);
		push @abused, $beside[0];
		$per_second += $beside[1] / $rounds;
		$refused += $beside[2];
		$_->query('SELECT zk_lock_release_all()') foreach @abusers, @holders;
		$node->wait_until(q{SELECT count(*) = 0 FROM zk_locks WHERE path LIKE '/abuser/%' AND ticket <> 'lingering'});
	}
	cmp_ok($per_second + $refused, '>', 0, "$what: done, and refused $refused times");
	next unless $seconds;
	my @cells;
	foreach my $i (0, 1)
	{
		my ($alone, $busy, $abused) = map { my $turns = $_; median(map { $_->[$i] } @$turns) } \@alone, \@busy, \@abused;
		push @cells, sprintf '%.*f µs, %.1f, **%.1f**', $i ? 0 : 1, $abused, $abused / $alone, $abused / $busy;
	}
	push @table, sprintf '| %s | %.0f | %s |', $what, $per_second, join(' | ', @cells);
	note $table[-1];
}

append_to_file("$ENV{LAB}/out/abuse.md", join("\n", @table, '')) if $seconds;
$_->quit foreach $watcher, $victim, @abusers, @holders;
$node->stop;
done_testing();
