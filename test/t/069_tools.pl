
# The tools that people use, as doc/tools.md has them: migrations on two application hosts at once, on one
# database, run once; the schedule of pg_cron is accepted; and the pooler lets a client of JDBC in.

use strict;
use warnings;

use File::Basename qw(dirname);
use FindBin;
use IPC::Run;

use Examples;
use PgBouncer;
use ZklockTest;

my $top = "$FindBin::RealBin/../..";
my $stage = dirname($ENV{TEMP_CONFIG}) . '/stage';
chomp(my $bindir = `pg_config --bindir`);
my $directory = PostgreSQL::Test::Utils::tempdir;

# {heading}{language}: the block.
my %block;
foreach my $section (Examples::sections_of("$top/doc/tools.md", 'doc/tools.md'))
{
	$block{ $section->{name} }{ $_->{language} } //= $_->{text} foreach @{ $section->{blocks} };
}

my $zk = ZooKeeper->new;
my $node = ZklockNode->started('a', $zk);
my $other = ZklockNode->started('b', $zk);
$node->safe_psql('postgres', 'CREATE DATABASE app');
$node->safe_psql('app', 'CREATE EXTENSION zklock');

local %ENV = (%ENV, PGHOST => $node->host, PGPORT => $node->port, PGUSER => 'postgres', PATH => "$stage$bindir:$ENV{PATH}",
	HOME => $directory, npm_config_cache => "$directory/npm");

sub write_file
{
	my ($name, $text) = @_;
	mkdir $_ foreach map { dirname(dirname($_)), dirname($_) } "$directory/$name";
	append_to_file("$directory/$name", $text);
	return;
}

sub start
{
	my ($folder, $command) = @_;
	my %run = (out => '');
	$run{harness} = IPC::Run::start([ 'bash', '-c', $command ], '<', \undef, '>&', \$run{out},
		init => sub { chdir "$directory/$folder" or die $! }, IPC::Run::timer($PostgreSQL::Test::Utils::timeout_default));
	return \%run;
}

# Two application hosts migrate at once, while a session of another server has the lock: both wait for it, one of them
# migrates, and both succeed.
sub migrate_twice
{
	my ($tool, $folder, $command, $query, $result) = @_;
	my $holder = $other->backend;
	is($holder->query("SELECT zk_lock_acquire('/migrations/app')"), 't', "$tool: another server has the lock");
	my @hosts = map { start($folder, $command) } 1 .. 2;
	$node->wait_until(q{SELECT count(*) = 2 FROM zk_locks WHERE path = '/migrations/app' AND claim = 'waiting'}, "$tool: both hosts wait");
	is($node->safe_psql('postgres', q{SELECT count(*) FROM zk_locks l JOIN pg_stat_activity a USING (pid)
		WHERE l.path = '/migrations/app' AND a.backend_xmin IS NOT NULL}), '0', "$tool: no host holds a snapshot");
	is($holder->query("SELECT zk_lock_release('/migrations/app')"), 't', "$tool: the lock is free");
	foreach my $host (@hosts)
	{
		$host->{harness}->finish;
		is($host->{harness}->full_result(0), 0, "$tool: a host succeeds") or diag $host->{out};
		unlike($host->{out}, qr/was guarded/, "$tool: its transactions are guarded") if $command =~ /--guard/;
	}
	is($node->safe_psql('app', $query), $result, "$tool: the migration was done once");
	$holder->quit;
	return;
}

# A script runs a migration, which waits before its commit, and zklock-run is killed; the script dies with it.  Another
# server has the lock, and only then the tool goes on: its commit is refused.
sub loses_lock
{
	my ($tool, $folder, $command) = @_;
	my ($blocker, $next) = ($node->backend(dbname => 'app'), $other->backend);
	$blocker->query('SELECT pg_advisory_lock(7)');
	my $host = start($folder, 'exec ' . $command =~ s{/migrations/app }{/migrations/app sh -c '"\$@"; exit' script }r);
	$node->wait_until(q{SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'advisory' AND query ~ 'lock_shared'}, "$tool: the migration waits");
	kill 'KILL', map { $_->{PID} } grep { $_->{PID} } @{ $host->{harness}{KIDS} };
	is($next->query("SELECT zk_lock_acquire('/migrations/app', '1 min')"), 't', "$tool: another server has the lock");
	$blocker->query('SELECT pg_advisory_unlock(7)');
	$host->{harness}->finish;
	like($host->{out}, qr{lock "/migrations/app" is not held}, "$tool: the commit is refused");
	is($node->safe_psql('app', q{SELECT to_regclass('lost') IS NULL}), 't', "$tool: nothing is left of the migration");
	$_->quit foreach $blocker, $next;
	return;
}

# --- which drivers read PGOPTIONS ---

# The value of zklock.commit_under in a session of the driver under zklock-run --guard, and whether that warned.
sub shown_by
{
	my ($driver, $command) = @_;
	my $run = start('', "zklock-run --guard -d app /migrations/app $command");
	$run->{harness}->finish;
	return ($run->{out} =~ /shown:(.*)$/m)[0] . ($run->{out} =~ /no transaction of the command was guarded/ ? ' warning' : '');
}

write_file('show.py', <<'END');
import sys
driver = __import__(sys.argv[1])
cursor = driver.connect('dbname=app').cursor()
cursor.execute('SHOW zklock.commit_under')
print('shown:' + cursor.fetchone()[0])
END
write_file('Show.java', <<'END');
public class Show {
    public static void main(String[] arguments) throws Exception {
        var result = java.sql.DriverManager.getConnection(arguments[0]).createStatement().executeQuery("SHOW zklock.commit_under");
        result.next();
        System.out.println("shown:" + result.getString(1));
    }
}
END
like(shown_by('psql', q{psql -XAt -d app -c "SELECT 'shown:' || current_setting('zklock.commit_under')"}), qr{^\d+ /migrations/app$}, 'psql reads PGOPTIONS');
foreach my $driver ('psycopg2', 'psycopg')
{
	SKIP: {
		skip "there is no $driver", 1 if system("/usr/bin/python3 -c 'import $driver' 2>/dev/null") != 0;
		like(shown_by($driver, "/usr/bin/python3 show.py $driver"), qr{^\d+ /migrations/app$}, "$driver reads PGOPTIONS");
	}
}
SKIP: {
	skip 'there is no pgjdbc', 2 if !-f '/usr/share/java/postgresql.jar';
	$node->configure('listen_addresses' => '127.0.0.1');
	append_to_file($node->data_dir . '/pg_hba.conf', "host all all 127.0.0.1/32 trust\n");
	$node->restart;
	$node->wait_until_connected;
	my $url = 'jdbc:postgresql://127.0.0.1:' . $node->port . '/app?user=postgres';
	my ($options) = slurp_file("$top/doc/tools.md") =~ m{`jdbc:postgresql://db1/app\?(options=\S+)`};
	is(shown_by('pgjdbc', "java -cp /usr/share/java/postgresql.jar Show.java '$url'"), ' warning', 'pgjdbc does not read PGOPTIONS');
	is(shown_by('pgjdbc', "java -cp /usr/share/java/postgresql.jar Show.java '$url&$options'"), '/migrations/app', 'but its connection string can have the setting');
}

# --- Alembic ---

SKIP: {
	skip 'there is no Alembic', 1 if system("/usr/bin/python3 -c 'import alembic, psycopg2' 2>/dev/null") != 0;
	write_file('bin/alembic', qq{#!/bin/sh\nexec /usr/bin/python3 -m alembic "\$@"\n});	# python3-alembic has no program
	chmod 0755, "$directory/bin/alembic" or die $!;
	local $ENV{PATH} = "$directory/bin:$ENV{PATH}";
	write_file('alembic/alembic.ini', "[alembic]\nscript_location = .\nsqlalchemy.url = postgresql+psycopg2:///app\n");
	write_file('alembic/env.py', "from alembic import context\nfrom sqlalchemy import create_engine\nfrom sqlalchemy.pool import NullPool\n"
		  . "config = context.config\n$block{Alembic}{python}\nrun_migrations_online()\n");
	write_file('alembic/versions/1_invoice.py', "revision = '1'\ndown_revision = None\nfrom alembic import op\n"
		  . "def upgrade():\n    op.execute('CREATE TABLE invoice (id int)')\n");
	migrate_twice('Alembic', 'alembic', 'alembic upgrade head', 'SELECT version_num FROM alembic_version', '1');

	# A second version builds an index, which the first host's transaction cannot: under zklock-run.
	write_file('alembic/versions/2_index.py', "revision = '2'\ndown_revision = '1'\nfrom alembic import op\n"
		  . "def upgrade():\n    with op.get_context().autocommit_block():\n        op.execute('CREATE INDEX CONCURRENTLY ON invoice (id)')\n");
	PostgreSQL::Test::Utils::system_or_bail('sed', '-i', '/zk_xact_lock_wait/d', "$directory/alembic/env.py");
	migrate_twice('Alembic under zklock-run', 'alembic', $block{Alembic}{sh}, q{SELECT count(*), bool_and(indisvalid) FROM pg_index WHERE indrelid = 'invoice'::regclass}, '1|t');
	write_file('alembic/versions/3_lost.py', "revision = '3'\ndown_revision = '2'\nfrom alembic import op\n"
		  . "def upgrade():\n    op.execute('CREATE TABLE lost ()')\n    op.execute('SELECT pg_advisory_xact_lock_shared(7)')\n");
	loses_lock('Alembic', 'alembic', $block{Alembic}{sh});
}

# --- Django ---

SKIP: {
	skip 'there is no Django', 1 if system("/usr/bin/python3 -c 'import django' 2>/dev/null") != 0;
	write_file('django/manage.py', <<'END');
import sys
from django.conf import settings
settings.configure(INSTALLED_APPS=['shop'], DEFAULT_AUTO_FIELD='django.db.models.AutoField',
    DATABASES={'default': {'ENGINE': 'django.db.backends.postgresql', 'NAME': 'app'}})
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
END
	write_file('django/shop/__init__.py', '');
	write_file('django/shop/migrations/__init__.py', '');
	write_file('django/shop/migrations/0001_initial.py', <<'END');
from django.db import migrations
class Migration(migrations.Migration):
    initial = True
    operations = [migrations.RunSQL('CREATE TABLE django_invoice (id int)')]
END
	migrate_twice('Django', 'django', $block{Django}{sh} =~ s{\bpython3\b}{/usr/bin/python3}r,
		q{SELECT count(*) FROM django_migrations WHERE app = 'shop'}, '1');
	write_file('django/shop/migrations/0002_lost.py', <<'END');
from django.db import migrations
class Migration(migrations.Migration):
    dependencies = [('shop', '0001_initial')]
    operations = [migrations.RunSQL('CREATE TABLE lost ()'), migrations.RunSQL('SELECT pg_advisory_xact_lock_shared(7)')]
END
	loses_lock('Django', 'django', $block{Django}{sh} =~ s{\bpython3\b}{/usr/bin/python3}r);
}

# --- node-pg-migrate, which comes from the registry of npm ---

SKIP: {
	mkdir "$directory/node" or die $!;
	my $install = start('node', 'node --version && npm init -y && npm install --no-fund --no-audit node-pg-migrate@7 pg@8');
	$install->{harness}->finish;
	skip 'node-pg-migrate is not to be had here', 1 if $install->{harness}->full_result(0) != 0;
	write_file('node/migrations/1700000000000_invoice.js', "exports.up = (pgm) => { pgm.createTable('node_invoice', { id: 'id' }); };\n");
	local $ENV{DATABASE_URL} = 'postgres://postgres@/app?host=' . $node->host . '&port=' . $node->port;
	write_file('node/show.js', "const c = new (require('pg').Client)({ database: 'app' });"
		  . "c.connect().then(() => c.query('SHOW zklock.commit_under')).then(r => { console.log('shown:' + r.rows[0]['zklock.commit_under']); c.end(); })\n");
	like(shown_by('node-postgres', 'node node/show.js'), qr{^\d+ /migrations/app$}, 'node-postgres reads PGOPTIONS');
	migrate_twice('node-pg-migrate', 'node', $block{'node-pg-migrate'}{sh}, 'SELECT count(*) FROM pgmigrations', '1');
	write_file('node/migrations/1700000000001_lost.js',
		"exports.up = (pgm) => { pgm.createTable('lost', { id: 'id' }); pgm.sql('SELECT pg_advisory_xact_lock_shared(7)'); };\n");
	loses_lock('node-pg-migrate', 'node', $block{'node-pg-migrate'}{sh});
}

# --- pg_cron ---

SKIP: {
	my $has = $node->safe_psql('app', q{SELECT count(*) FROM pg_available_extensions WHERE name = 'pg_cron'});
	skip 'there is no pg_cron', 1 if !$has;
	$node->append_conf('postgresql.conf', "shared_preload_libraries = 'zklock,pg_cron'\ncron.database_name = 'app'");
	$node->restart;
	$node->safe_psql('app', 'CREATE EXTENSION pg_cron');
	like($node->safe_psql('app', $block{Schedulers}{sql}), qr/^\d+$/, 'pg_cron: the schedule');
	my ($command) = $block{Schedulers}{sql} =~ /\$\$ (.*) \$\$/;
	$node->safe_psql('app', q{CREATE FUNCTION nightly() RETURNS integer LANGUAGE sql AS 'SELECT 1'});
	is($node->safe_psql('app', $command), '1', 'pg_cron: its command runs');
	is($node->safe_psql('app', $command), '', 'pg_cron: once');
}

# --- PgBouncer ---

SKIP: {
	skip 'there is no pgbouncer', 1 if !PgBouncer->program;
	my ($ignored) = $block{PgBouncer}{ini} =~ /^(ignore_startup_parameters = .*)$/m;
	$node->safe_psql('app', "CREATE ROLE site LOGIN; $block{PgBouncer}{sql}");
	my $pooler = PgBouncer->new($node, app => 'dbname=app pool_mode=transaction pool_size=1', pgbouncer => $ignored);
	my $site = $node->backend(dbname => 'app', extra_params => [ '-U', 'site' ]);
	is($site->errcode(q{SELECT zk_lock_acquire('/jobs/site')}), '42501', 'PgBouncer: no session-level locks');
	$site->quit;
	my $ignoring = PgBouncer->new($node, app => 'dbname=app pool_mode=transaction', pgbouncer => "$ignored,options");
	foreach ([ $pooler, qr/unsupported startup parameter/ ], [ $ignoring, qr/no transaction of the command was guarded/ ])
	{
		my $run = start('', "zklock-run --guard -d app /migrations/app psql -Xc 'SELECT 1' -h " . $_->[0]->directory . ' -p ' . $_->[0]->port . ' app');
		$run->{harness}->finish;
		like($run->{out}, $_->[1], 'PgBouncer: does not pass PGOPTIONS on, and says so, or zklock-run does');
	}
	$ignoring->stop;
	my $client = $pooler->backend('app');
	is($client->query(q{SELECT zk_xact_lock_acquire('/jobs/site')}), 't', 'PgBouncer: transaction-level ones');
	$client->quit;
}

# --- Patroni ---

my %setting = $block{'Patroni and CloudNativePG'}{yaml} =~ /^    (\S+): (.*)$/mg;
cmp_ok(scalar(keys %setting), '==', 3, 'Patroni: three settings');
is($node->safe_psql('postgres', "SELECT count(*) FROM pg_settings WHERE name IN ('" . join("', '", keys %setting) . "')"), '3', 'Patroni: they exist');

$_->stop foreach $node, $other;
done_testing();
