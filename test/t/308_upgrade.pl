
# A server with zklock goes to another cluster: by dump and restore, and by pg_upgrade.  The
# extension, its rows and its privileges are the same as in one that was just made; meanwhile
# the server takes no part in the locks.  With OLD_PG_CONFIG, the pg_config of an older
# version of PostgreSQL that has zklock installed, the upgrade is from that.

use strict;
use warnings;

use Test::More;

use PostgreSQL::Test::Utils;

use ZklockNode;
use ZooKeeper;

my $zk = ZooKeeper->new;
my %old_version = $ENV{OLD_PG_CONFIG} ? (install_path => qx{"$ENV{OLD_PG_CONFIG}" --bindir} =~ s{/bin\n$}{}r) : ();

# Both clusters have checksums, because versions differ in whether they have them by default.
my %settings = ('zklock.leader_of' => '/leaders/cron', init => [ extra => ['--data-checksums'] ]);

# What there is of the extension: each object with its privileges, comment and definition.
my $catalogue = q{
	SELECT o.type, o.identity, d.description, coalesce(p.proacl, c.relacl)::text,
		   replace(pg_get_functiondef(p.oid), '$libdir/', ''), pg_get_viewdef(c.oid)
	FROM pg_depend AS x
		 CROSS JOIN pg_identify_object(x.classid, x.objid, x.objsubid) AS o
		 LEFT JOIN pg_description AS d ON (d.classoid, d.objoid, d.objsubid) = (x.classid, x.objid, 0)
		 LEFT JOIN pg_proc AS p ON x.classid = 'pg_proc'::regclass AND p.oid = x.objid AND p.prokind = 'f'
		 LEFT JOIN pg_class AS c ON x.classid = 'pg_class'::regclass AND c.oid = x.objid AND c.relkind = 'v'
	WHERE x.refclassid = 'pg_extension'::regclass AND x.deptype = 'e'
		  AND x.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'zklock')
	ORDER BY o.type, o.identity};

# TEMP_CONFIG leads to the library under test, which is not for an older PostgreSQL.
my $config = $ENV{TEMP_CONFIG};
delete $ENV{TEMP_CONFIG} if %old_version;
my $old = ZklockNode->started('old', $zk, %settings, %old_version);
$ENV{TEMP_CONFIG} = $config;
note $old->safe_psql('postgres', q{SELECT 'from ' || version()});
my $witness = ZklockNode->started('witness', $zk);
my $fresh = $witness->safe_psql('postgres', $catalogue);
is($old->safe_psql('postgres', $catalogue), $fresh, 'two fresh installations are equal')
  unless %old_version;

$old->wait_until(q{SELECT zk_is_leader('/leaders/cron')});
$old->safe_psql('postgres', q{
	CREATE ROLE app;
	CREATE TABLE result (n int);
	CREATE VIEW mine AS SELECT path, claim FROM zk_locks WHERE pid = pg_backend_pid();
	CREATE FUNCTION job() RETURNS void BEGIN ATOMIC
		INSERT INTO result SELECT 1 WHERE zk_xact_run_once('/jobs/nightly', '2026-01-01 02:00+00'); END;
	GRANT EXECUTE ON FUNCTION zk_fence(text, bigint) TO app;
	SELECT zk_fence('account', 1000);
	SELECT job()});
$witness->safe_psql('postgres', 'CREATE ROLE app; GRANT EXECUTE ON FUNCTION zk_fence(text, bigint) TO app');
my $granted = $witness->safe_psql('postgres', $catalogue);

sub is_all_there
{
	my ($node, $database, $name) = @_;
	is($node->safe_psql($database, q{SELECT extversion FROM pg_extension WHERE extname = 'zklock'}), '1.0', "$name: the extension");
	is($node->safe_psql($database, $catalogue), $granted, "$name: its objects, comments and privileges");
	is($node->safe_psql($database, 'SELECT resource, token FROM zk_fences'), 'account|1000', "$name: the fences");
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

done_testing();
