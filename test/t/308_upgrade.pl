
# A server with zklock goes to another cluster, by dump and restore and by pg_upgrade, and a
# database goes to another version of the extension.  Afterwards the extension, its rows and its
# privileges are the same as in a fresh installation; meanwhile the server takes no part in the
# locks.  With OLD_PG_CONFIG, the pg_config of an older version of PostgreSQL that has zklock
# installed, the upgrade is from that version.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use Examples;
use ZklockTest;

my $zk = ZooKeeper->new;
my %old_version = $ENV{OLD_PG_CONFIG} ? (install_path => qx{"$ENV{OLD_PG_CONFIG}" --bindir} =~ s{/bin\n$}{}r) : ();

# Both clusters have checksums, because versions differ in whether they have them by default.
my %settings = ('zklock.leader_of' => '/leaders/cron', init => [ extra => ['--data-checksums'] ]);

# Everything that belongs to the extension: each object with its privileges and definition; the
# comments on the objects and their columns; the columns; the triggers; the privileges that came with the
# extension; what the objects, and the rules of the views, depend on.  Privileges of a function that
# are the default ones may be noted or not: pg_upgrade does not.
my $objects = q{
	WITH object AS (
		SELECT classid, objid FROM pg_depend
		WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e'
			  AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'zklock'))
	};
my $catalogue = join ';', map { "$objects $_" } q{
	SELECT o.type, o.identity, coalesce(p.proacl, acldefault('f', p.proowner)), c.relacl,
		   replace(pg_get_functiondef(p.oid), '$libdir/', ''), CASE c.relkind WHEN 'v' THEN pg_get_viewdef(c.oid) END
	FROM object AS x
		 CROSS JOIN pg_identify_object(x.classid, x.objid, 0) AS o
		 LEFT JOIN pg_proc AS p ON x.classid = 'pg_proc'::regclass AND p.oid = x.objid AND p.prokind IN ('f', 'p')
		 LEFT JOIN pg_class AS c ON x.classid = 'pg_class'::regclass AND c.oid = x.objid
	ORDER BY o.type, o.identity},
q{	SELECT o.identity, d.description
	FROM object AS x JOIN pg_description AS d ON (d.classoid, d.objoid) = (x.classid, x.objid)
		 CROSS JOIN pg_identify_object(x.classid, x.objid, d.objsubid) AS o
	ORDER BY o.identity},
q{	SELECT a.attrelid::regclass, a.attname, a.atttypid::regtype, a.attnotnull
	FROM object AS x JOIN pg_attribute AS a ON x.classid = 'pg_class'::regclass AND a.attrelid = x.objid
	WHERE a.attnum > 0
	ORDER BY a.attrelid::regclass::text, a.attnum},
q{	SELECT t.tgrelid::regclass, t.tgenabled, pg_get_triggerdef(t.oid)
	FROM object AS x JOIN pg_trigger AS t ON x.classid = 'pg_class'::regclass AND t.tgrelid = x.objid
	ORDER BY t.tgrelid::regclass::text, t.tgname},
q{	SELECT o.identity, i.initprivs
	FROM object AS x JOIN pg_init_privs AS i ON (i.classoid, i.objoid) = (x.classid, x.objid)
		 CROSS JOIN pg_identify_object(x.classid, x.objid, i.objsubid) AS o
		 LEFT JOIN pg_proc AS p ON x.classid = 'pg_proc'::regclass AND p.oid = x.objid
	WHERE i.initprivs IS DISTINCT FROM acldefault('f', p.proowner)
	ORDER BY o.identity},
q{	SELECT o.identity, r.identity, d.deptype
	FROM pg_depend AS d
		 CROSS JOIN pg_identify_object(d.classid, d.objid, d.objsubid) AS o
		 CROSS JOIN pg_identify_object(d.refclassid, d.refobjid, d.refobjsubid) AS r
	WHERE EXISTS (SELECT FROM object AS x
				  WHERE (d.classid, d.objid) = (x.classid, x.objid)
						OR (d.refclassid, d.refobjid) = (x.classid, x.objid) AND d.classid = 'pg_rewrite'::regclass AND d.deptype = 'i')
	ORDER BY o.identity, r.identity, d.deptype};

# TEMP_CONFIG leads to the library under test, which does not fit an older PostgreSQL.
my $config = $ENV{TEMP_CONFIG};
delete $ENV{TEMP_CONFIG} if %old_version;
my $old = ZklockNode->started('old', $zk, %settings, %old_version);
$ENV{TEMP_CONFIG} = $config;
note $old->safe_psql('postgres', q{SELECT 'from ' || version()});
my $witness = ZklockNode->started('witness', $zk);
my $version = $witness->safe_psql('postgres', q{SELECT extversion FROM pg_extension WHERE extname = 'zklock'});
my $fresh = $witness->safe_psql('postgres', $catalogue);
is($old->safe_psql('postgres', $catalogue), $fresh, 'two fresh installations are equal')
  unless %old_version;

# Users have used the extension.
my $uses = q{
	CREATE TABLE result (n int);
	CREATE VIEW mine AS SELECT path, claim FROM zk_locks WHERE pid = pg_backend_pid();
	CREATE FUNCTION job() RETURNS void BEGIN ATOMIC
		INSERT INTO result SELECT 1 WHERE zk_xact_run_once('/jobs/nightly', '2026-01-01 02:00+00'); END;
	GRANT EXECUTE ON FUNCTION zk_fence(text, bigint) TO app;
	SELECT zk_fence('account', 1000);
	SELECT job()};
$old->wait_until(q{SELECT zk_is_leader('/leaders/cron')});
$old->safe_psql('postgres', "CREATE ROLE app; $uses");
$witness->safe_psql('postgres', 'CREATE ROLE app; GRANT EXECUTE ON FUNCTION zk_fence(text, bigint) TO app');
my $granted = $witness->safe_psql('postgres', $catalogue);

sub is_all_there
{
	my ($node, $database, $name) = @_;
	is($node->safe_psql($database, q{SELECT extversion FROM pg_extension WHERE extname = 'zklock'}), $version, "$name: the extension");
	is($node->safe_psql($database, $catalogue), $granted, "$name: its objects, comments and privileges");
	is($node->safe_psql($database, q{SELECT resource, token FROM zk_fences WHERE resource = 'account'}), 'account|1000', "$name: the fences");
	is($node->safe_psql($database, 'SELECT job(); SELECT count(*) FROM result'), "\n1", "$name: a job that has run is over");
	is($node->safe_psql($database, q{BEGIN; SELECT zk_xact_lock_acquire('/a'); SELECT path, claim FROM mine}), "t\n/a|held", "$name: a lock");
	return;
}

# Dump and restore, into another server.
my $dump = "${PostgreSQL::Test::Utils::tmp_check}/old.sql";
$witness->safe_psql('postgres', 'CREATE DATABASE restored');
command_ok([ 'pg_dump', '-f', $dump, '-d', $old->connstr('postgres') ], 'pg_dump');
command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $dump, '-d', $witness->connstr('restored') ], 'restore');
is_all_there($witness, 'restored', 'restored');

# pg_upgrade starts both servers by turns, with their own configurations.
$old->stop;
my $new = ZklockNode->initialized('new', $zk, %settings);
$witness->wait_until(q{SELECT NOT EXISTS (SELECT FROM zk_lock_queue('/leaders/cron'))});
my $old_bin = %old_version ? "$old_version{install_path}/bin" : $new->config_data('--bindir');
command_ok(
	[ 'pg_upgrade', '--retain', '--old-bindir', $old_bin, '--new-bindir', $new->config_data('--bindir'),
		'--old-datadir', $old->data_dir, '--new-datadir', $new->data_dir,
		'--old-port', $old->port, '--new-port', $new->port, '--socketdir', $new->host ],
	'pg_upgrade');
my @logs = split /\n/, qx{find '${\ $new->data_dir}/pg_upgrade_output.d' -name pg_upgrade_server.log};
cmp_ok(scalar @logs, '>', 0, 'the logs of pg_upgrade are there');
unlike(slurp_file($_), qr/connected to ZooKeeper|now leads/, 'no server that pg_upgrade started has spoken to ZooKeeper') foreach @logs;

$new->start;
$new->wait_until_connected;
is_all_there($new, 'postgres', 'upgraded');
$new->wait_until(q{SELECT zk_is_leader('/leaders/cron')});
ok(1, 'the new server leads');

# --- another version of the extension ---

# How each function and view of 1.0 is used, and what it returns.
my @use_of = (
	[ zk_lock_acquire => q{zk_lock_acquire('/update/a')}, 't' ],
	[ zk_lock_is_held => q{zk_lock_is_held('/update/a')}, 't' ],
	[ zk_lock_token => q{zk_lock_token('/update/a') >= 0}, 't' ],
	[ zk_lock_remaining => q{zk_lock_remaining('/update/a')}, '' ],
	[ zk_lock_is_revoked => q{zk_lock_is_revoked('/update/a')}, 'f' ],
	[ zk_path_is_allowed => q{zk_path_is_allowed('/update/a')}, 't' ],
	[ zk_lock_queue => q{count(*) FROM zk_lock_queue('/update/a') WHERE holds}, 1 ],
	[ zk_lock_revoke => q{zk_lock_revoke('/update/a')}, 1 ],
	[ zk_blockers => q{count(*) FROM zk_blockers(pg_backend_pid())}, 0 ],
	[ zk_lock_release => q{zk_lock_release('/update/a')}, 't' ],
	[ zk_xact_lock_acquire => q{zk_xact_lock_acquire('/update/b', '1 min', '1 min')}, 't' ],
	[ zk_read_lock_acquire => q{zk_read_lock_acquire('/update/rw')}, 't' ],
	[ zk_read_lock_release => q{zk_read_lock_release('/update/rw')}, 't' ],
	[ zk_write_lock_acquire => q{zk_write_lock_acquire('/update/rw')}, 't' ],
	[ zk_write_lock_release => q{zk_write_lock_release('/update/rw')}, 't' ],
	[ zk_xact_read_lock_acquire => q{zk_xact_read_lock_acquire('/update/rw')}, 't' ],
	[ zk_xact_write_lock_acquire => q{zk_xact_write_lock_acquire('/update/rw')}, 't' ],
	[ zk_semaphore_acquire => q{zk_semaphore_acquire('/update/leases', 2)}, 't' ],
	[ zk_semaphore_release => q{zk_semaphore_release('/update/leases')}, 't' ],
	[ zk_xact_semaphore_acquire => q{zk_xact_semaphore_acquire('/update/leases', 2)}, 't' ],
	[ zk_multilock_acquire => q{zk_multilock_acquire('{/update/c, /update/d}')}, 't' ],
	[ zk_multilock_release => q{zk_multilock_release('{/update/c, /update/d}')}, 't' ],
	[ zk_xact_multilock_acquire => q{zk_xact_multilock_acquire('{/update/c, /update/d}')}, 't' ],
	[ zk_tick => q{zk_tick('1 hour') <= now() + interval '1 min'}, 't' ],
	[ zk_run_once => q{zk_run_once('/update/job', '2026-01-01 02:00+00')}, 't' ],
	[ zk_jobs => q{count(*) FROM zk_jobs WHERE path = '/update/job' AND state = 'started' AND holder_pid = pg_backend_pid()}, 1 ],
	[ zk_lock_release_all => q{zk_lock_release_all()}, 1 ],
	[ zk_job_forget => q{zk_job_forget('/update/job')}, 't' ],
	[ zk_xact_run_once => q{zk_xact_run_once('/update/xact_job', '2026-01-01 02:00+00')}, 't' ],
	[ zk_job_forget => q{zk_job_forget('/update/xact_job')}, 't' ],
	[ zk_lock_force_release => q{zk_lock_force_release('/update/nobody')}, 0 ],
	[ zk_fence => q{zk_fence('update', 7)}, '' ],
	[ zk_fences => q{token FROM zk_fences WHERE resource = 'update'}, 7 ],
	[ zk_locks => q{count(*) > 0 FROM zk_locks}, 't' ],
	[ zk_waits => q{count(*) FROM zk_waits}, 0 ],
	[ zk_sessions => q{count(*) FROM zk_sessions WHERE safe}, 1 ],
	[ zk_status => q{count(*) FROM zk_status WHERE safe}, 1 ],
	[ zk_stat_locks => q{count(*) > 0 FROM zk_stat_locks}, 't' ],
	[ zk_stat => q{acquired > 0 FROM zk_stat}, 't' ],
	[ zk_stat_reset => q{zk_stat_reset()}, '' ],
	[ zk_version => q{zk_version() <> ''}, 't' ],
	[ zk_is_leader => q{zk_is_leader('/leaders/cron')}, 't' ],
	[ zk_leaders => q{count(*) FROM zk_leaders WHERE leads}, 1 ],
	[ zk_leader_resign => q{zk_leader_resign('/leaders/cron')}, 't' ]);

# Every function and view works, and every column of a view, or of a function that returns rows, can
# be read.
sub all_work
{
	my ($database, $what) = @_;
	my $backend = $new->backend(dbname => $database);
	$new->wait_until(q{SELECT zk_is_leader('/leaders/cron')});
	is($backend->query("SELECT $_->[1]"), $_->[2], "$what: $_->[0]") foreach @use_of;
	is($backend->errcode("SELECT * FROM $_"), '', "$what: all columns of $_") foreach split /\n/, $new->safe_psql($database, "$objects" . q{
		SELECT objid::regclass::text FROM object WHERE classid = 'pg_class'::regclass
		UNION ALL
		SELECT proname || '()' FROM object JOIN pg_proc ON classid = 'pg_proc'::regclass AND oid = objid WHERE proretset AND pronargs = 0
		ORDER BY 1});
	$backend->quit;
	return;
}

# A database at version 1.0 works with today's library, and after an update it equals a fresh one.
$new->safe_psql('postgres', "CREATE DATABASE $_") foreach 'updated', 'made_today';
$new->safe_psql('updated', q{CREATE EXTENSION zklock VERSION '1.0'});
is(join(' ', sort keys %{ { map { $_->[0] => 1 } @use_of } }),
	$new->safe_psql('updated', "$objects" . q{
		SELECT string_agg(DISTINCT name COLLATE "C", ' ' ORDER BY name COLLATE "C")
		FROM (SELECT proname::text FROM object JOIN pg_proc ON classid = 'pg_proc'::regclass AND oid = objid
			  UNION SELECT relname FROM object JOIN pg_class ON classid = 'pg_class'::regclass AND pg_class.oid = objid) AS o (name)}),
	'this test uses all functions and views of 1.0');
all_work('updated', 'still at 1.0');
$new->safe_psql('postgres', q{SELECT zk_job_forget('/jobs/nightly')});
$new->safe_psql('updated', $uses);
my $prepared = $new->backend(dbname => 'updated');
$prepared->query('PREPARE p AS SELECT * FROM zk_status; PREPARE q AS SELECT count(*) FROM zk_status; EXECUTE p; EXECUTE q');
$new->safe_psql('updated', 'ALTER EXTENSION zklock UPDATE');
is(join(' ', map { $prepared->errcode("EXECUTE $_") } 'q', 'p', 'p'), ' 0A000 0A000', 'updated: a prepared SELECT * of a view with more columns fails');
is($prepared->errcode('DEALLOCATE p; PREPARE p AS SELECT * FROM zk_status; EXECUTE p'), '', 'updated: until it is prepared again');
$prepared->quit;
$new->safe_psql('made_today', 'CREATE EXTENSION zklock; GRANT EXECUTE ON FUNCTION zk_fence(text, bigint) TO app');
is($new->safe_psql('updated', $catalogue), $new->safe_psql('made_today', $catalogue), 'updated: like an extension that was made today');
is_all_there($new, 'updated', 'updated');
all_work('updated', 'updated');

# --- and back ---

# A database that has gone back to 1.1 equals one at 1.1, but for null columns in views, and users' views stay.
my $columns = "$objects" . q{SELECT attrelid::regclass || '.' || attname FROM object JOIN pg_attribute ON classid = 'pg_class'::regclass AND attrelid = objid WHERE attnum > 0};
$new->safe_psql('postgres', 'CREATE DATABASE made_at_1_1');
$new->safe_psql('made_at_1_1', q{CREATE EXTENSION zklock VERSION '1.1'; GRANT EXECUTE ON FUNCTION zk_fence(text, bigint) TO app});
$new->safe_psql('updated', q{CREATE VIEW theirs AS SELECT * FROM zk_status; ALTER EXTENSION zklock UPDATE TO '1.1'});
my %at_1_1 = map { $_ => 1 } split /\n/, $new->safe_psql('made_at_1_1', $columns);
my @left = grep { !$at_1_1{$_} } split /\n/, $new->safe_psql('updated', $columns);
my $back = $new->safe_psql('updated', $catalogue) =~ s/,\n +NULL::[\w ]+ AS \w+//gr;
$back =~ s/^(?:public\.)?\Q$_\E\|[^\n]*\n//mg, $back =~ s/^@{[ s{\.}{\\|}r ]}\|[^\n]*\n//mg foreach @left;
is($back, $new->safe_psql('made_at_1_1', $catalogue), 'back at 1.1: like an extension that was made at 1.1');
is($new->safe_psql('updated', 'SELECT count(*) FROM theirs WHERE safe; SELECT token FROM zk_fences'), "1\n1000\n7", "back at 1.1: a user's view, and the tokens");
all_work('updated', 'back at 1.1');
$new->safe_psql('updated', 'ALTER EXTENSION zklock UPDATE');
is($new->safe_psql('updated', $catalogue), $new->safe_psql('made_today', $catalogue), 'and there again: like an extension that was made today');

# To 1.0, as doc/installing.md says.
$new->safe_psql('postgres', "CREATE DATABASE $_") foreach 'to_1_0', 'made_at_1_0';
$new->safe_psql('to_1_0', q{CREATE EXTENSION zklock; SELECT zk_fence('account', 1000)});
$new->safe_psql('made_at_1_0', q{CREATE EXTENSION zklock VERSION '1.0'});
my ($steps) = map { $_->{text} } grep { $_->{language} eq 'psql' } map { @{ $_->{blocks} } } Examples::sections_of("$FindBin::RealBin/../../doc/installing.md", 'doc/installing.md');
append_to_file("${PostgreSQL::Test::Utils::tmp_check}/steps.sql", $steps =~ s{zk_fences\.txt}{${PostgreSQL::Test::Utils::tmp_check}/zk_fences.txt}gr);
command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', "${PostgreSQL::Test::Utils::tmp_check}/steps.sql", '-d', $new->connstr('to_1_0') ], 'to 1.0');
is($new->safe_psql('to_1_0', $catalogue), $new->safe_psql('made_at_1_0', $catalogue), 'at 1.0: like an extension that was made at 1.0');
is($new->safe_psql('to_1_0', 'TABLE zk_fences'), 'account|1000', 'at 1.0: the tokens');

done_testing();
