
# The recipe "Migrations": two hosts of an application migrate one database, by SQL and by zklock-run, and
# an index that one of them builds concurrently does not wait for the other.  zklock-run on a server with
# the objects of an older version.

use strict;
use warnings;

use File::Basename qw(dirname);
use FindBin;
use IPC::Run;
use ZklockTest;

my $zk = ZooKeeper->new;
my $node = ZklockNode->started('a', $zk, 'zklock.linger' => 0, 'zklock.session_timeout' => '60s');
my $watcher = $node->backend;
my $directory = PostgreSQL::Test::Utils::tempdir;
my $program = dirname($ENV{TEMP_CONFIG}) . '/stage' . `pg_config --bindir` =~ s/\n//r . '/zklock-run';

# --- by SQL ---

# The statements as they are printed.
my ($section) = slurp_file("$FindBin::Bin/../../doc/recipes.md") =~ /^## Migrations, one server at a time\n(.*?)^## /ms;
my ($in_a_block, $outside) = map { [ grep { /\S/ } split /(?<=;)\s*(?:--[^\n]*)?\n(?=\S)/, $_ ] } $section =~ /^```sql\n(.*?)^```/msg;
is(scalar(@$outside), 3, 'the page has the statements');
my @hosts = map { $node->backend } 1, 2;
$_->query(q{SET statement_timeout = '1min'}) foreach @hosts;

foreach ([ 'in a block', @$in_a_block ], [ 'outside of one', @$outside ])
{
	my ($what, @statements) = @$_;
	my @waits = grep { $what eq 'in a block' ? $_ < 2 : $_ < 1 } 0 .. $#statements;
	$hosts[0]->query(q{SELECT zk_lock_acquire('/migrations')});
	$hosts[1]->query($_) foreach @statements[ @waits[ 0 .. $#waits - 1 ] ];
	$hosts[1]->send($statements[ $waits[-1] ]);
	$watcher->wait_until('SELECT count(*) = 1 FROM zk_locks WHERE claim = $$waiting$$ AND pid = ' . $hosts[1]->pid);
	$watcher->wait_until('SELECT wait_event IS NOT NULL FROM pg_stat_activity WHERE pid = ' . $hosts[1]->pid);
	$hosts[0]->query('CREATE TABLE IF NOT EXISTS invoice (id int PRIMARY KEY, day date)');
	my $result = $hosts[0]->run('CREATE INDEX CONCURRENTLY ON invoice (day)');
	is($result->{errcode}, '', "$what: the first host builds an index while the second one waits") or diag($result->{err});
	$hosts[0]->query(q{SELECT zk_lock_release('/migrations')});
	is($hosts[1]->result->{errcode}, '', "$what: the second host has its turn");
	is($hosts[1]->errcode($statements[$_]), $statements[$_] =~ /CREATE TABLE invoice|^DO/ ? '42P07' : '', "$what: $statements[$_]")
	  foreach grep { $_ > $waits[-1] && $statements[$_] !~ /^DO/ } 0 .. $#statements;
	$node->wait_until_clean('/migrations');
}
is($watcher->query(q{SELECT count(*) FROM pg_index WHERE NOT indisvalid}), 0, 'no index is invalid');
$_->quit foreach @hosts;

# --- by zklock-run ---

sub start_run
{
	my (@args) = @_;
	my %run = (out => '', err => '');
	local %ENV = (%ENV, PGHOST => $node->host, PGPORT => $node->port, PGDATABASE => 'postgres', PGUSER => 'postgres');
	$run{harness} = IPC::Run::start([ $program, @args ], '<', \undef, '>', \$run{out}, '2>', \$run{err},
		$run{timer} = IPC::Run::timer($PostgreSQL::Test::Utils::timeout_default));
	return \%run;
}

sub status { my ($run) = @_; $run->{harness}->finish; return $run->{status} = $run->{harness}->result || 0; }
sub run_it { my $run = start_run(@_); status($run); return $run; }

sub wait_for_host
{
	my ($path) = @_;
	$watcher->wait_until("SELECT count(*) = 1 FROM zk_locks WHERE claim = 'waiting' AND path = '$path'");
	return $watcher->wait_until(q{SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event_type IN ('Lock', 'Extension') AND backend_type = 'client backend'});
}

# A command that goes on when a file is there.  An index build that hangs fails in the end.
my $go = "$directory/go";
my $build = "until [ -e $go ]; do sleep 0.02; done; PGOPTIONS='-c statement_timeout=1min' psql -X -q -c 'CREATE INDEX CONCURRENTLY ON invoice (day)'";
foreach my $kind ([], ['--exclusive'], ['--semaphore=1'])
{
	my $what = "zklock-run @$kind";
	my $path = '/run' . (@$kind ? "/$kind->[0]" =~ s/\W//gr : '/mutex');
	unlink $go;
	my $first = start_run(@$kind, $path, 'sh', '-c', $build);
	$watcher->wait_until("SELECT count(*) = 1 FROM zk_locks WHERE claim = 'held' AND path = '$path'");
	my $second = start_run(@$kind, $path, 'echo', 'migrated');
	wait_for_host($path);
	append_to_file($go, '');
	is(status($first), 0, "$what: an index is built while another zklock-run waits") or diag($first->{err});
	is(status($second), 0, "$what: which has its turn");
	is("$second->{out}$second->{err}", "migrated\n", "$what: and says nothing");
}

# --- zklock-run without the procedures ---

$node->safe_psql('postgres', 'CREATE DATABASE older; CREATE DATABASE replayed');
$node->safe_psql('older', q{CREATE EXTENSION zklock VERSION '1.0'});

# As on a standby whose primary has been updated, and that has the old library loaded.
$node->safe_psql('replayed', q{CREATE EXTENSION zklock; UPDATE pg_proc SET prosrc = 'zklock_not_there' WHERE proname LIKE 'zk\_%\_wait' AND prokind = 'p'});
foreach my $database ('older', 'replayed')
{
	foreach my $kind ([], ['--shared'], ['--exclusive'], ['--semaphore=1'])
	{
		my $what = "$database: zklock-run @$kind";
		my $path = "/$database" . (@$kind ? "/$kind->[0]" =~ s/\W//gr : '/mutex');
		my $run = run_it('-d', $database, @$kind, $path, 'echo', 'ran');
		is("$run->{status} $run->{out}", "0 ran\n", "$what: runs");
		is(() = $run->{err} =~ /^zklock-run: warning: the wait for the lock holds back VACUUM/mg, 1, "$what: and says once what it holds back");
		next if @$kind && $kind->[0] eq '--shared';
		$watcher->query(@$kind ? $kind->[0] eq '--exclusive' ? "SELECT zk_write_lock_acquire('$path')" : "SELECT zk_semaphore_acquire('$path', 1)" : "SELECT zk_lock_acquire('$path')");
		is(run_it('-d', $database, @$kind, '-t', '0', $path, 'false')->{status}, 75, "$what: a try");
		$run = start_run('-d', $database, @$kind, $path, 'echo', 'ran');
		wait_for_host($path);
		is($watcher->query("SELECT count(*) FROM pg_stat_activity WHERE application_name <> '' AND wait_event IS NOT NULL AND query LIKE 'SELECT%\\_acquire(%' AND datname = '$database'"), 1, "$what: waits by the function");
		$watcher->query('SELECT zk_lock_release_all()');
		is(status($run), 0, "$what: and has its turn");
	}
	my $run = run_it('-d', $database, '--once=now', "/$database/once", 'echo', 'ran');
	is("$run->{status} $run->{out}$run->{err}", "0 ran\n", "$database: --once");
}
is(run_it('-t', '0', '/quiet', 'true')->{err}, '', 'with the procedures, nothing is said');

# The library guards, but the objects of 1.1 have no function that counts what it has guarded.
$node->safe_psql('postgres', 'CREATE DATABASE counts_none');
$node->safe_psql('counts_none', q{CREATE EXTENSION zklock VERSION '1.1'});
my $guarded = run_it('-d', 'counts_none', '--guard', '--once=now', '/counts_none', 'true');
is("$guarded->{status} $guarded->{err}", '0 ', 'the objects of 1.1: --guard says nothing');
$node->wait_until(q{SELECT state <> 'started' FROM zk_jobs WHERE path = '/counts_none'});
is($node->safe_psql('postgres', q{SELECT state FROM zk_jobs WHERE path = '/counts_none'}), 'done', '... and the run is done');

$watcher->quit;
$node->stop;
done_testing();
