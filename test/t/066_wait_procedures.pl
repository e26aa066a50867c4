
# The procedures zk_…_wait: a session that waits by CALL holds nothing back.  Where a snapshot must stay,
# the procedure acquires all the same.

use strict;
use warnings;

use IPC::Run;
use ZklockTest;

my $zk = ZooKeeper->new;
my %settings = ('zklock.session_timeout' => '60s', 'zklock.linger' => 0, 'autovacuum' => 'off');
my $node = ZklockNode->started('a', $zk, %settings);
my $node_far = ZklockNode->started('far', $zk, %settings);

# A holder on the waiter's server, so that the waiter waits for the advisory lock; and one on another
# server, so that it waits in ZooKeeper.
my %holder = (near => $node->backend, far => $node_far->backend);
my $watcher = $node->backend;
$watcher->query($_) foreach q{SET statement_timeout = '1min'}, 'CREATE TABLE work (id int, payload text)', 'CREATE TABLE built (id int)';

# Waits until the process sleeps, with a snapshot or without one; dies if that does not come.
sub sleeps
{
	my ($pid, $path, $with) = @_;
	return $watcher->wait_until("SELECT (SELECT count(*) > 0 FROM zk_locks WHERE path LIKE '$path%' AND pid = $pid AND claim = 'waiting' AND (kind = 'semaphore' OR ticket IN ('queued', 'owned')))"
		. " AND (SELECT wait_event IS NOT NULL AND state = 'active' AND (backend_xmin IS NOT NULL) = $with FROM pg_stat_activity WHERE pid = $pid)");
}

# What dies now, VACUUM removes.
sub vacuum_removes
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$watcher->query($_) foreach 'INSERT INTO work SELECT i FROM generate_series(1, 10) i', 'DELETE FROM work';
	my $result = $watcher->run('VACUUM (VERBOSE, TRUNCATE off) work');
	like($result->{err}, qr/\b0 are dead but not yet removable/, "$what: VACUUM removes what died meanwhile");
	return;
}

# --- each procedure ---

my %kinds = (
	lock => { arguments => q{'%s'}, holds => 'zk_lock' },
	read_lock => { arguments => q{'%s'}, holds => 'zk_write_lock' },
	write_lock => { arguments => q{'%s'}, holds => 'zk_write_lock' },
	semaphore => { arguments => q{'%s', 1}, holds => 'zk_semaphore' },
	multilock => { arguments => q{ARRAY['%s/2', '%1$s']}, holds => 'zk_lock' });

foreach my $kind (sort keys %kinds)
{
	foreach my $where ('near', 'far')
	{
		foreach my $level ('', 'xact_')
		{
			my ($procedure, $path) = ("zk_$level${kind}_wait", "/each/$kind/$where/$level" =~ s{/$}{}r);
			my $what = "$procedure, $where";
			my ($holder, $hold) = ($holder{$where}, $kinds{$kind}{holds});
			my @held = $kind eq 'multilock' ? ($path, "$path/2") : ($path);
			$holder->query("SELECT ${hold}_acquire(" . sprintf($kinds{$kind}{arguments}, $_) =~ s/ARRAY\[.*?('\S+')\]/$1/r . ')') foreach @held;

			# The first call of a fresh session, with an argument that reads catalogs.
			my $waiter = $node->backend;
			my $pid = $waiter->pid;
			(my $arguments = sprintf($kinds{$kind}{arguments}, $path)) =~ s/'(\S+?)'/'$1' || left(pg_get_userbyid(10), 0)/g;
			foreach my $begin ('', 'BEGIN')
			{
				$waiter->query($begin);
				$waiter->send("CALL $procedure($arguments)");
				ok(sleeps($pid, $path, 'false'), "$what: waits without a snapshot, " . ($begin || 'at top level'));
				vacuum_removes($what);

				# What is cached of roles is out of date from now on.
				$watcher->query('ALTER ROLE CURRENT_USER CONNECTION LIMIT ' . ($begin ? -1 : 1000));
				my $index = $where eq 'near' ? $holder : $watcher;
				is($index->errcode('CREATE INDEX CONCURRENTLY ON built (id)'), '', "$what: an index is built");
				foreach my $released (@held)
				{
					ok(sleeps($pid, $path, 'false'), "$what: still without a snapshot");
					vacuum_removes($what);
					$holder->query("SELECT ${hold}_release('$released')");
				}
				is($waiter->result->{errcode}, '', "$what: acquires");
				is($waiter->query("SELECT zk_lock_is_held('$path')"), $level && !$begin ? 'f' : 't', "$what: and holds, as long as the function would");
				$waiter->query('COMMIT') if $begin;
				is($waiter->query('SELECT zk_lock_release_all()'), $level ? 0 : @held, "$what: at its level");
				$holder->query("SELECT ${hold}_acquire(" . sprintf($kinds{$kind}{arguments}, $_) =~ s/ARRAY\[.*?('\S+')\]/$1/r . ')') foreach @held;
			}

			# The time is over: an error, and nothing is left.
			foreach my $timeout ('0', '50 ms')
			{
				my $result = $waiter->run_again("CALL $procedure($arguments, timeout => '$timeout')");
				is($result->{errcode}, '55P03', "$what: timeout $timeout");
				like($result->{err}, $kind eq 'multilock' ? qr/could not acquire all locks/ : qr/could not acquire lock "\Q$path\E"/, "$what: and what was not acquired");
			}
			is($watcher->query("SELECT count(*) FROM zk_locks WHERE pid = $pid"), 0, "$what: nothing is left");
			$holder->query("SELECT ${hold}_release('$_')") foreach @held;
			is($waiter->errcode("CALL $procedure($arguments, timeout => '0')"), '', "$what: a try that succeeds") if $where eq 'near';
			$waiter->quit;
			$_->wait_until_clean($path) foreach $node, $node_far;
		}
	}
}

# --- where no snapshot is held, and where one stays ---

$node->safe_psql('postgres', q{
	CREATE FUNCTION in_function() RETURNS void LANGUAGE plpgsql AS $$ BEGIN CALL zk_lock_wait('/cell'); END $$;
	CREATE PROCEDURE plain() LANGUAGE plpgsql AS $$ BEGIN CALL zk_lock_wait('/cell'); END $$;
	CREATE PROCEDURE nested() LANGUAGE plpgsql AS $$ BEGIN CALL plain(); END $$;
	CREATE PROCEDURE after_commit() LANGUAGE plpgsql AS $$ BEGIN INSERT INTO work VALUES (1); COMMIT; CALL zk_lock_wait('/cell'); PERFORM count(*) FROM work; END $$;
	CREATE PROCEDURE definer() LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN CALL zk_lock_wait('/cell'); END $$;
	CREATE PROCEDURE sets() LANGUAGE plpgsql SET work_mem = '1MB' AS $$ BEGIN CALL zk_lock_wait('/cell'); END $$;
	CREATE PROCEDURE puts_out(INOUT o int) LANGUAGE plpgsql AS $$ BEGIN CALL zk_lock_wait('/cell'); o := 1; END $$;
	CREATE PROCEDURE in_sql() LANGUAGE sql AS $$ CALL zk_lock_wait('/cell') $$});
my $call = q{CALL zk_lock_wait('/cell')};
my $definer = 'ALTER PROCEDURE zk_lock_wait(text, interval, interval) SECURITY';
my @cells = (
	# what, whether a snapshot stays, what comes before, what waits
	[ 'a statement', 'false', '', $call ],
	[ 'a statement of a block', 'false', 'BEGIN; SELECT count(*) FROM work', $call ],
	[ 'behind a savepoint', 'false', 'BEGIN; SAVEPOINT s', $call ],
	[ 'one of several statements', 'false', '', "SELECT 1\\; $call\\; SELECT 2" ],
	[ 'DO', 'false', '', "DO \$\$ BEGIN $call; PERFORM count(*) FROM work; END \$\$" ],
	[ 'a procedure', 'false', '', 'CALL plain()' ],
	[ 'a procedure that a procedure calls', 'false', '', 'CALL nested()' ],
	[ 'a procedure that has committed', 'false', '', 'CALL after_commit()' ],
	[ 'the procedure with SECURITY DEFINER', 'false', "$definer DEFINER", $call ],
	[ 'a function', 'true', "$definer INVOKER", 'SELECT in_function()' ],
	[ 'DO in a block', 'true', 'BEGIN', "DO \$\$ BEGIN $call; END \$\$" ],
	[ 'a procedure in a block', 'true', 'BEGIN', 'CALL plain()' ],
	[ 'an EXCEPTION block', 'true', '', "DO \$\$ BEGIN BEGIN $call; EXCEPTION WHEN division_by_zero THEN END; PERFORM count(*) FROM work; END \$\$" ],
	[ 'a procedure with SECURITY DEFINER', 'true', '', 'CALL definer()' ],
	[ 'a procedure with SET', 'true', '', 'CALL sets()' ],
	[ 'a procedure with output arguments', 'true', '', 'CALL puts_out(0)' ],
	[ 'LANGUAGE sql', 'true', '', 'CALL in_sql()' ],
	[ 'EXECUTE', 'true', '', "DO \$\$ BEGIN EXECUTE 'CALL zk_lock_wait(''/cell'')'; END \$\$" ],
	[ 'a loop over a query', 'true', '', "DO \$\$ DECLARE r record; BEGIN FOR r IN SELECT id FROM work LOOP $call; END LOOP; END \$\$" ],
	[ 'a cursor', 'true', 'BEGIN; DECLARE c CURSOR FOR SELECT id FROM work', $call ],
	[ 'REPEATABLE READ', 'true', 'BEGIN ISOLATION LEVEL REPEATABLE READ', $call ]);
foreach (@cells)
{
	my ($what, $stays, $before, $statement) = @$_;
	foreach my $where ('near', 'far')
	{
		my $waiter = $node->backend;
		$waiter->query($before);
		$watcher->query('TRUNCATE work; INSERT INTO work VALUES (1)') if $before !~ /work/;
		$holder{$where}->query(acquire('/cell'));
		$waiter->send($statement);
		ok(sleeps($waiter->pid, '/cell', $stays), "$what, $where: " . ($stays eq 'true' ? 'a snapshot stays' : 'no snapshot'));
		$holder{$where}->query(release('/cell'));
		is($waiter->result->{errcode}, '', "$what, $where: acquires");
		is($waiter->query('SELECT count(*) >= 0 FROM work'), 't', "$what, $where: and the session goes on");
		$waiter->query('COMMIT') if $before =~ /BEGIN/;
		is($waiter->query(held('/cell')), 't', "$what, $where: with the lock");
		$waiter->quit;
		$_->wait_until_clean('/cell') foreach $node, $node_far;
	}
}

# The extended protocol, prepared statements, a pipeline.
my $script = PostgreSQL::Test::Utils::tempdir . '/script';
foreach ([ 'extended', $call ], [ 'prepared', $call ], [ 'extended', "\\startpipeline\nSELECT 1;\n$call;\nSELECT 2;\n\\endpipeline" ])
{
	my ($mode, $text) = @$_;
	my $what = "pgbench, $mode" . ($text =~ /pipeline/ ? ', a pipeline' : '');
	unlink $script;
	append_to_file($script, $text =~ /pipeline/ ? $text : "$text;\n");
	$holder{far}->query(acquire('/cell'));
	delete local $ENV{PGAPPNAME};		# of the test itself
	my $run = IPC::Run::start([ 'pgbench', '-n', '-t', '1', '-M', $mode, '-f', $script, '-h', $node->host, '-p', $node->port, 'postgres' ],
		'>', \my $out, '2>', \my $err, IPC::Run::timer($PostgreSQL::Test::Utils::timeout_default));

	# (Its first connection only asks which database this is.)
	my $waits = q{FROM pg_stat_activity WHERE application_name = 'pgbench' AND state = 'active' AND query LIKE 'CALL%'};
	$watcher->wait_until("SELECT count(*) = 1 $waits");
	my $pid = $watcher->query("SELECT pid $waits");
	ok(sleeps($pid, '/cell', 'false'), "$what: no snapshot");
	$holder{far}->query(release('/cell'));
	$run->finish;
	is($run->full_result || 0, 0, "$what: acquires") or diag($err);
	$_->wait_until_clean('/cell') foreach $node, $node_far;
}

# --- bad input, privileges, warnings ---

my $user = $node->backend;
foreach my $kind (sort keys %kinds)
{
	foreach my $level ('', 'xact_')
	{
		my ($procedure, $function) = ("zk_$level${kind}_wait", "zk_$level${kind}_acquire");
		my @bad = (sprintf($kinds{$kind}{arguments}, 'relative'), sprintf($kinds{$kind}{arguments}, '/bad') . q{, timeout => '-1 s'});
		push @bad, q{NULL::text[]}, q{ARRAY['/bad', NULL]} if $kind eq 'multilock';
		push @bad, q{'/bad', 0}, q{'/bad', 1, quantity => 2} if $kind eq 'semaphore';
		push @bad, q{'/bad', lease_time => '0'} if $kind =~ /lock$/ && $kind ne 'multilock';
		foreach my $arguments (@bad)
		{
			my ($of_function, $of_procedure) = map { $user->run($_) } "SELECT $function($arguments)", "CALL $procedure($arguments)";
			is($of_procedure->{errcode}, $of_function->{errcode}, "$procedure($arguments): the function's error");
			isnt($of_procedure->{errcode}, '', "$procedure($arguments): is one");
		}
		is($user->errcode("SELECT $procedure(" . sprintf($kinds{$kind}{arguments}, '/bad') . ')'), '42809', "$procedure is a procedure");

		# A role that may not execute the function must not get at it by the procedure.
		my ($signature) = $watcher->query("SELECT oid::regprocedure FROM pg_proc WHERE proname = '$function'");
		$watcher->query('CREATE ROLE outsider; GRANT EXECUTE ON ALL ROUTINES IN SCHEMA public TO outsider') if $watcher->query(q{SELECT count(*) FROM pg_roles WHERE rolname = 'outsider'}) eq '0';
		$watcher->query("REVOKE EXECUTE ON FUNCTION $signature FROM PUBLIC, outsider");
		$user->query('SET ROLE outsider');
		my $result = $user->run("CALL $procedure(" . sprintf($kinds{$kind}{arguments}, '/bad') . ')');
		is($result->{errcode}, '42501', "$procedure: demands the privilege for the function");
		like($result->{err}, qr/permission denied for function $function/, "$procedure: and names it");
		$user->query('RESET ROLE');
		$watcher->query("GRANT EXECUTE ON FUNCTION $signature TO PUBLIC");
		$user->query('SET ROLE outsider');
		is($user->errcode("CALL $procedure(" . sprintf($kinds{$kind}{arguments}, '/bad') . ')'), '', "$procedure: with it, acquires");
		$user->query('RESET ROLE; SELECT zk_lock_release_all()');
		$node->wait_until_clean('/bad');

		# A transaction-level lock outside of a block.
		$result = $user->run("CALL $procedure(" . sprintf($kinds{$kind}{arguments}, '/bad') . ')');
		is($result->{err} =~ /WARNING:\s+25P01: / ? 1 : 0, $level ? 1 : 0, "$procedure: WARNING outside of a block");
		like($result->{err}, qr/$procedure/, "$procedure: which names it") if $level;
		$user->query('SELECT zk_lock_release_all()');
		next if !$level;
		foreach ([ "BEGIN\\; CALL $procedure(%s)\\; COMMIT", 'a block' ], [ "CALL $procedure(%s)\\; SELECT 1", 'several statements' ],
			[ "DO \$\$ BEGIN CALL $procedure(%s); END \$\$", 'DO' ])
		{
			my ($statement, $what) = @$_;
			unlike($user->run(sprintf($statement, sprintf($kinds{$kind}{arguments}, '/bad')))->{err}, qr/WARNING/, "$procedure: none in $what");
		}
	}
}
$user->query(q{SET zklock.session_level = off});
is($user->errcode(q{CALL zk_lock_wait('/bad')}), '42501', 'a session-level lock where there may be none');
is($user->errcode(q{CALL zk_xact_lock_wait('/bad')}), '', 'and a transaction-level one');
$user->query('BEGIN');
$user->errcode('SELECT 1 / 0');
is($user->errcode(q{CALL zk_xact_lock_wait('/bad')}), '25P02', 'an aborted transaction');
$user->query('ROLLBACK');
$user->quit;

# --- log_lock_waits, in a database whose encoding is not that of paths ---

$watcher->query(q{CREATE DATABASE western ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0});
$node->safe_psql('western', 'CREATE EXTENSION zklock');
foreach my $where ('near', 'far')
{
	my $waiter = $node->backend(dbname => 'western');
	$waiter->query($_) foreach q{SET client_encoding = 'UTF8'}, 'SET log_lock_waits = on', q{SET deadlock_timeout = '50ms'};
	$holder{$where}->query(acquire("/w\xc3\xa4rts"));
	my $log = -s $node->logfile;
	$waiter->send("CALL zk_lock_wait('/w\xc3\xa4rts')");
	$zk->wait_until(sub { return slurp_file($node->logfile, $log) =~ /still waiting for ExclusiveLock on/ }, 'the wait to be logged');
	ok(sleeps($waiter->pid, '/w', 'false'), "LATIN1, $where: no snapshot after the wait is logged");
	vacuum_removes("LATIN1, $where");
	$holder{$where}->query(release("/w\xc3\xa4rts"));
	my $result = $waiter->result;
	is($result->{errcode}, '', "LATIN1, $where: acquires");

	# (PostgreSQL sends ASCII only of what is said while it writes another message to the log.)
	like($result->{err}, $where eq 'near' ? qr/still waiting for .*"\/w\?rts"/ : qr/still waiting for .*"\/w\xc3\xa4rts"/, "LATIN1, $where: a NOTICE has the path");
	$waiter->quit;
	$_->wait_until_clean("/w\xc3\xa4rts") foreach $node, $node_far;
}

$_->quit foreach $watcher, values %holder;
$_->stop foreach $node, $node_far;
done_testing();
