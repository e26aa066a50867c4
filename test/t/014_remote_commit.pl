
# A transaction that also writes on another server, through postgres_fdw.  postgres_fdw commits
# there at the same stage at which the commit guard may still refuse: the guard comes first,
# whatever was the backend's first use of postgres_fdw.  And such a transaction counts as writing,
# although it has no transaction ID here.

use strict;
use warnings;

use PgWire;
use ZklockTest;

my $zk = ZooKeeper->new;
my $node = ZklockNode->started('a', $zk, 'zklock.session_timeout' => '30s', 'zklock.on_lost' => 'notice',
	'wal_level' => 'logical', 'max_wal_senders' => 4);
my $remote = sprintf(<<'END', $node->host, $node->port);
	CREATE EXTENSION postgres_fdw;
	CREATE SERVER remote FOREIGN DATA WRAPPER postgres_fdw
		OPTIONS (host '%s', port '%s', dbname 'postgres');
	CREATE USER MAPPING FOR CURRENT_USER SERVER remote OPTIONS (user 'postgres', password_required 'false');
	CREATE FOREIGN TABLE remote_work (what text) SERVER remote OPTIONS (table_name 'work');
END
$node->safe_psql('postgres', $remote . <<'END');
	CREATE TABLE work (what text);
	CREATE TABLE here (what text);
	CREATE TABLE parted (what text) PARTITION BY LIST (what);
	CREATE FOREIGN TABLE part PARTITION OF parted DEFAULT SERVER remote OPTIONS (table_name 'work');

	CREATE PROCEDURE empty_it() LANGUAGE plpgsql AS $$ BEGIN TRUNCATE remote_work; END $$;
	CREATE FUNCTION empties() RETURNS int LANGUAGE plpgsql AS $$ BEGIN TRUNCATE remote_work; RETURN 1; END $$;
	CREATE FUNCTION empties_in_sql() RETURNS void LANGUAGE sql AS 'TRUNCATE remote_work';
	CREATE FUNCTION empties_after_insert() RETURNS int LANGUAGE plpgsql AS $$
		BEGIN INSERT INTO here VALUES ('lost'); TRUNCATE remote_work; RETURN 1; END $$;
	CREATE FUNCTION empties_in_sql_after_insert() RETURNS void LANGUAGE sql AS $$
		INSERT INTO here VALUES ('lost'); TRUNCATE remote_work $$;

	CREATE TABLE watched (what text);
	CREATE FUNCTION at_the_end() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN TRUNCATE remote_work; RETURN NULL; END $$;
	CREATE CONSTRAINT TRIGGER at_the_end AFTER INSERT ON watched DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW EXECUTE FUNCTION at_the_end();

	-- They wait for the loss, and commit by themselves.
	CREATE PROCEDURE empty_and_commit() LANGUAGE plpgsql AS $$ BEGIN
		PERFORM zk_xact_lock_acquire('/guarded');
		WHILE zk_lock_is_held('/guarded') LOOP PERFORM pg_sleep(0.01); END LOOP;
		TRUNCATE remote_work;
		COMMIT;
	END $$;
	CREATE PROCEDURE empty_then_acquire() LANGUAGE plpgsql AS $$ DECLARE waited boolean; BEGIN
		TRUNCATE remote_work;
		waited := zk_xact_lock_acquire('/guarded');		-- no statement, for PL/pgSQL
		WHILE zk_lock_is_held('/guarded') LOOP waited := pg_sleep(0.01)::text = ''; END LOOP;
		COMMIT;
	END $$;
END

sub rows { return $node->safe_psql('postgres', q{SELECT coalesce(string_agg(what, ' ' ORDER BY what), '') FROM work}); }
sub reset_rows { return $node->safe_psql('postgres', q{TRUNCATE work, here; INSERT INTO work VALUES ('there')}); }

sub is_untouched
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(rows(), 'there', "$what: nothing has changed on the other server");
	is($node->safe_psql('postgres', 'SELECT count(*) FROM here'), '0', "$what: nor here");
	return reset_rows();
}

sub take_away
{
	my ($path) = @_;
	$node->wait_until("SELECT count(*) = 1 FROM zk_locks WHERE path = '$path' AND granted");
	return $zk->delete("/zklock$path/" . $zk->children("/zklock$path")->[0]);
}

# The same, and wait until the backend has been told.
sub lose
{
	my ($path) = @_;
	take_away($path);
	$node->wait_until("SELECT bool_or(claim = 'lost') FROM zk_locks WHERE path = '$path'");
	return;
}

reset_rows();

# The connection is opened before the first lock, after it, or in an earlier transaction.
my $acquire = q{SELECT zk_xact_lock_acquire('/guarded')};
my $write = q{INSERT INTO remote_work VALUES ('lost')};
my $copy = 'COPY remote_work FROM PROGRAM $$echo lost$$';
foreach my $case (
	[ 'acquires, then connects', $acquire, $write ],
	[ 'connects, then acquires', $write, $acquire ])
{
	my ($what, @statements) = @$case;
	my $backend = $node->backend;
	foreach my $turn (1, 2)
	{
		$backend->query('BEGIN');
		$backend->query($_) foreach @statements;
		lose('/guarded');
		is($backend->errcode('COMMIT'), 'ZK001', "$what, $turn: the commit is refused");
		is_untouched("$what, $turn");
	}
	$backend->query('BEGIN');
	$backend->query($_ =~ s/lost/kept/r) foreach @statements;
	is($backend->errcode('COMMIT'), '', "$what: with the lock it commits");
	is(rows(), 'kept there', "$what: and everything is there");
	reset_rows();
	$backend->quit;
}

# --- what a backend's first use of postgres_fdw may be ---

my @first_uses = (
	[ 'INSERT', $write ],
	[ 'COPY FROM', $copy ],
	[ 'TRUNCATE', 'TRUNCATE remote_work' ],
	[ 'DO', 'DO $$ BEGIN TRUNCATE remote_work; END $$' ],
	[ 'CALL', 'CALL empty_it()' ],
	[ 'a function', 'SELECT empties()' ],
	[ 'a function in SQL', 'SELECT empties_in_sql()' ],
	[ 'EXPLAIN ANALYZE', "EXPLAIN ANALYZE $write" ],
	[ 'EXECUTE', "PREPARE p AS $write; EXECUTE p" ],
	[ 'a partition', q{INSERT INTO parted VALUES ('lost')} ],
	[ 'COPY into a partition', 'COPY parted FROM PROGRAM $$echo lost$$' ],
	[ 'a statement that fails, then another',
		'SAVEPOINT s', q{!TRUNCATE remote_work, nowhere}, q{!INSERT INTO remote_work SELECT (1 / 0)::text}, 'ROLLBACK TO s', 'TRUNCATE remote_work' ],
	[ 'a block that fails, then another',
		'DO $$ BEGIN BEGIN TRUNCATE remote_work; RAISE division_by_zero; EXCEPTION WHEN division_by_zero THEN NULL; END; TRUNCATE remote_work; END $$' ],
	[ 'a cursor that has not ended', 'DECLARE c CURSOR FOR SELECT empties() FROM generate_series(1, 9)', 'FETCH c' ],
	[ 'a cursor that reads, then a command', 'DECLARE c CURSOR FOR SELECT * FROM remote_work', 'INSERT INTO here VALUES (1)', $copy ],
	[ 'a cursor WITH HOLD, at the end', 'DECLARE c CURSOR WITH HOLD FOR SELECT empties()' ],
	[ 'a deferred trigger, at the end', q{INSERT INTO watched VALUES ('lost')} ],
	[ 'a deferred trigger after a cursor WITH HOLD',
		q{DECLARE c CURSOR WITH HOLD FOR SELECT 1}, q{INSERT INTO watched VALUES ('lost')} ]);

foreach my $commit ('COMMIT', 'COMMIT AND CHAIN')
{
	foreach my $case (@first_uses)
	{
		my ($what, @statements) = @$case;
		my $backend = $node->backend;
		$backend->query("BEGIN; $acquire");
		foreach my $statement (@statements)
		{
			if ($statement =~ s/^!//) { isnt($backend->errcode($statement), '', "$what: fails"); $backend->run('ROLLBACK TO s'); }
			else { $backend->query($statement) }
		}
		lose('/guarded');
		is($backend->errcode($commit), 'ZK001', "$what, $commit: refused");
		$backend->quit;
		is_untouched("$what, $commit");
	}
}

# COMMIT in a procedure
foreach my $procedure ('empty_and_commit', 'empty_then_acquire')
{
	my $backend = $node->backend;
	$backend->send("CALL $procedure()");
	take_away('/guarded');
	is($backend->result->{errcode}, 'ZK001', "$procedure: refused");
	is_untouched($procedure);
	$backend->quit;
}

# A fast-path function call is no statement at all.
foreach my $function ('empties_after_insert', 'empties_in_sql_after_insert')
{
	my $client = PgWire->new($node->host, $node->port, 'fast');
	$client->query(acquire('/guarded'));
	lose('/guarded');
	is($client->call($node->safe_psql('postgres', "SELECT '$function'::regproc::oid"))->{error}, 'ZK001', "fast path, $function: refused");
	is_untouched("fast path, $function");
	$client->close;
}

# A portal that was only bound opens a connection, too.
{
	my $client = PgWire->new($node->host, $node->port, 'bound');
	$client->query("BEGIN; $acquire");
	is($client->bind('p', 'SELECT * FROM remote_work')->{error}, '', 'bound');
	is($client->query('COPY remote_work FROM STDIN', copy => "lost\n")->{error}, '', 'bound, then COPY FROM STDIN');
	lose('/guarded');
	is($client->query('COMMIT')->{error}, 'ZK001', 'bound, never run: refused');
	is_untouched('bound, never run');
	$client->close;
}

# A background worker: one that applies the changes that another database publishes.
$node->safe_psql('postgres', q{CREATE TABLE news (what text); CREATE PUBLICATION news FOR TABLE news; CREATE DATABASE reader});
$node->safe_psql('reader', $remote . <<'END');
	CREATE EXTENSION zklock;
	CREATE TABLE news (what text);
	CREATE FUNCTION on_news() RETURNS trigger LANGUAGE plpgsql SET search_path = public AS $$ BEGIN
		PERFORM zk_xact_lock_acquire('/guarded');
		WHILE zk_lock_is_held('/guarded') LOOP PERFORM pg_sleep(0.01); END LOOP;
		TRUNCATE remote_work;
		RETURN NULL;
	END $$;
	CREATE TRIGGER on_news AFTER INSERT ON news FOR EACH ROW EXECUTE FUNCTION on_news();
	ALTER TABLE news ENABLE ALWAYS TRIGGER on_news;
END
$node->safe_psql('postgres', q{SELECT pg_create_logical_replication_slot('news', 'pgoutput')});
$node->safe_psql('reader', sprintf(<<'END', $node->host, $node->port));
	CREATE SUBSCRIPTION news CONNECTION 'host=%s port=%s user=postgres dbname=postgres' PUBLICATION news
		WITH (create_slot = false, copy_data = false, disable_on_error = true)
END
my $log_at = -s $node->logfile;
$node->safe_psql('postgres', q{INSERT INTO news VALUES ('lost')});
take_away('/guarded');
$node->wait_until('SELECT NOT subenabled FROM pg_subscription');
like(slurp_file($node->logfile, $log_at), qr/ERROR:  lock "\/guarded" was lost/, 'a background worker: refused');
is_untouched('a background worker');
$node->safe_psql('reader', 'ALTER SUBSCRIPTION news SET (slot_name = NONE); DROP SUBSCRIPTION news');

# --- written on the other server only, under a session-level lock ---

# In one statement, which is a transaction of its own.
my $backend = $node->backend;
$backend->query(acquire('/session'));
lose('/session');
is($backend->errcode(q{WITH here AS (INSERT INTO here VALUES ('here')) INSERT INTO remote_work VALUES ('lost')}),
	'ZK001', 'one statement here and there: it is refused');
is_untouched('one statement here and there');

foreach my $statement (
	$write,
	q{UPDATE remote_work SET what = 'lost'},
	q{DELETE FROM remote_work},
	q{WITH gone AS (DELETE FROM remote_work RETURNING *) SELECT count(*) FROM gone},
	q{INSERT INTO parted VALUES ('lost')},
	q{SELECT * FROM remote_work FOR UPDATE},
	q{UPDATE here SET what = 'lost'},		# there is no row
	q{TRUNCATE remote_work},
	$copy,
	"EXPLAIN ANALYZE $write",
	"PREPARE p AS $write; EXECUTE p",
	'CALL empty_it()',
	'SELECT empties()',
	"BEGIN; $write; COMMIT",
	"BEGIN; SAVEPOINT s; $write; ROLLBACK TO s; COMMIT",	# it could be known, but is not
	"DO \$\$ BEGIN $write; COMMIT; END \$\$")
{
	is($backend->errcode($statement), 'ZK001', "$statement: refused");
	$backend->run('ROLLBACK');
	is_untouched($statement);
}
foreach my $statement (
	'SELECT * FROM remote_work',
	"BEGIN; $write; ROLLBACK; SELECT 1",		# another transaction than the one that wrote
	"PREPARE q AS $write",
	"EXPLAIN $write",
	'COPY (SELECT * FROM remote_work) TO STDOUT')
{
	my $result = $backend->run($statement);
	is($result->{errcode}, '', "$statement: only reads");
	like($result->{err}, qr/WARNING:  ZK001: lock "\/session" was lost/, "$statement: it is told");
}
$backend->query(release('/session'));
is($backend->errcode($write), '', 'released: it can write');
is(rows(), 'lost there', 'released: it has');

# The lock is acquired and lost after the transaction has written, and released before it commits.
reset_rows();
$backend->query("BEGIN; $write; SELECT zk_lock_acquire('/session')");
lose('/session');
$backend->query(release('/session'));
is($backend->errcode('COMMIT'), 'ZK001', 'released while it is lost: refused');
is_untouched('released while it is lost');

# Both transactions notify, here and on the other server, which is in the same cluster; so one must not
# wait for the other.  (If it does, no timeout ends that.)
$node->safe_psql('postgres', q{
	CREATE FUNCTION tells() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_notify('news', 'there'); RETURN NULL; END $$;
	CREATE TRIGGER tells AFTER INSERT ON work FOR EACH ROW EXECUTE FUNCTION tells()});
foreach my $both ("BEGIN; $write", q{BEGIN; INSERT INTO parted VALUES ('lost')}, "BEGIN; $copy")
{
	$backend->query($both);
	$backend->query(q{SELECT zk_xact_lock_acquire('/guarded')});
	$backend->query(q{NOTIFY news, 'here'});
	is($backend->errcode('COMMIT'), '', "$both: notifies on both servers");
}

done_testing();
