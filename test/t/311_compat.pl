
# Two servers with two versions of zklock share locks, and one server goes on to the other's version
# while its clients work.  OLD_CONFIG is the configuration with which a server finds the older version;
# test/compat makes it.  Without it, both servers run today's version.

use strict;
use warnings;

use IPC::Run;

use Contender;
use History;
use ZklockTest;

my $zk = ZooKeeper->new;
my %old_library = $ENV{OLD_CONFIG} ? slurp_file($ENV{OLD_CONFIG}) =~ /^(\w+) = '(.*)'$/mg : ();
my %settings = ('zklock.session_timeout' => '20s');
my %node = (
	new => ZklockNode->started('new', $zk, %settings),
	old => ZklockNode->started('old', $zk, %settings, %old_library));
my %backend = map { $_ => $node{$_}->backend } keys %node;

my %library = map { $_ => join ' ', slurp_file('/proc/' . $node{$_}->worker_pid . '/maps') =~ m{(/\S+/zklock\.so)$}m } keys %node;
isnt($library{old}, $library{new}, "two libraries: $library{old} and $library{new}") if %old_library;

# zk_lock_revoke once wrote what Curator writes; now it adds a mark to the holder's text.
my %knows_marks = map { $_ => slurp_file($library{$_}) =~ / revoke=t/ ? 1 : 0 } keys %node;
ok($knows_marks{new}, 'the library of today knows marks');

sub contender
{
	my ($name, %sql) = @_;
	return Contender->zklock($backend{$name}, $node{$name}, %sql);
}

sub mode
{
	my ($name, $mode) = @_;
	return contender($name,
		acquire => sub { my ($path, $ms) = @_; return "SELECT zk_${mode}_lock_acquire('$path', " . (defined $ms ? "'$ms ms'" : 'NULL') . ')'; },
		release => sub { "SELECT zk_${mode}_lock_release('$_[0]')" });
}

sub leases
{
	my ($name, $quantity) = @_;
	return contender($name,
		acquire => sub { my ($path, $ms) = @_; return "SELECT zk_semaphore_acquire('$path', 3, " . (defined $ms ? "'$ms ms'" : 'NULL') . ", $quantity)"; },
		release => sub { "SELECT zk_semaphore_release('$_[0]', $quantity)" });
}

sub multi
{
	my ($name) = @_;
	return contender($name,
		acquire => sub { my ($path, $ms) = @_; return "SELECT zk_multilock_acquire('{$path/1,$path/2}', " . (defined $ms ? "'$ms ms'" : 'NULL') . ')'; },
		release => sub { "SELECT zk_multilock_release('{$_[0]/1,$_[0]/2}')" });
}

sub is_released
{
	my ($node, $path) = @_;
	return $node->wait_until("SELECT NOT EXISTS (SELECT FROM zk_locks WHERE starts_with(path, '$path') AND coalesce(ticket, 'lingering') <> 'lingering')");
}

# The first server holds the lock that the second wants, and hands it over; before that, a try of
# the second fails.
sub hands_over
{
	my ($what, $path, $holder, $waiter, %opt) = @_;
	my $queue = $opt{queue} // $path;
	is($holder->acquire($path), 't', "$what: held");
	is($waiter->try($path), 'f', "$what: a try fails");
	is($waiter->acquire($path, 100), 'f', "$what: a wait times out");
	$waiter->send_acquire($path);
	if ($opt{wait})
	{
		$opt{wait}->();
	}
	else
	{
		$waiter->node->wait_for_ticket($queue, 'queued');
	}
	ok(!$waiter->is_done, "$what: the other server waits");
	$holder->release($path);
	is($waiter->answer, 't', "$what: the other server is next");
	is($holder->try($path), 'f', "$what: and excludes the first");
	$waiter->release($path);

	# Both servers may linger now, and find out from each other that no backend holds the lock.  The
	# delete is under way to ZooKeeper when a release returns; a try in the meantime would find the
	# lock held.
	is_released($waiter->node, $path);
	is($holder->try($path), 't', "$what: a try, while the lock lingers on the other server at most");
	$holder->release($path);
	is_released($holder->node, $path);

	# A try for leases waits less than one second for a server that lets them linger.
	$holder->node->wait_until("SELECT NOT EXISTS (SELECT FROM zk_locks WHERE starts_with(path, '$path'))") if $what =~ /leases/;
	is($waiter->try($path), 't', "$what: and back");
	$waiter->release($path);
	return;
}

foreach (['new', 'old'], ['old', 'new'])
{
	my ($one, $two) = @$_;
	my $dir = "/$one";
	my $what = "$one to $two";

	hands_over("$what: mutex", "$dir/mutex", contender($one), contender($two));
	hands_over("$what: write lock", "$dir/write", mode($one, 'write'), mode($two, 'write'));
	hands_over("$what: read lock to a writer", "$dir/read", mode($one, 'read'), mode($two, 'write'));
	hands_over("$what: write lock to a reader", "$dir/write_read", mode($one, 'write'), mode($two, 'read'));
	hands_over("$what: all leases", "$dir/leases", leases($one, 3), leases($two, 1), wait => sub { $node{$two}->wait_for_waiter("$dir/leases", 1) });
	hands_over("$what: several mutexes", "$dir/multi", multi($one), multi($two), queue => "$dir/multi/1");

	# Readers of both, and a writer who becomes a reader.
	my $path = "$dir/readers";
	is(mode($one, 'write')->acquire($path), 't', "$what: writes");
	is(mode($one, 'read')->acquire($path), 't', "$what: and reads");
	my $reader = mode($two, 'read');
	$reader->send_acquire($path);
	$node{$two}->wait_for_ticket($path, 'queued');
	mode($one, 'write')->release($path);
	is($reader->answer, 't', "$what: both read when the writer has become a reader");
	is(mode($two, 'write')->try("$path/other"), 't', "$what: another path is another lock");
	mode($two, 'write')->release("$path/other");
	$_->release($path) foreach mode($one, 'read'), $reader;

	# Leases of both.
	$path = "$dir/shared";
	is(leases($one, 2)->acquire($path), 't', "$what: two of three leases");
	is(leases($two, 2)->try($path), 'f', "$what: two more are too many");
	is(leases($two, 1)->try($path), 't', "$what: one is left");
	leases($two, 2)->send_acquire($path);
	$node{$two}->wait_for_waiter($path, 1);
	leases($one, 2)->release($path);
	is(leases($two, 2)->answer, 't', "$what: and then the other two");
	is(leases($one, 1)->try($path), 'f', "$what: none is left");
	leases($two, 3)->release($path);

	# A path in use is one kind of lock, whichever server asks.
	$path = "$dir/kind";
	is(contender($one)->acquire($path), 't', "$what: a mutex");
	is($backend{$two}->errcode("SELECT zk_read_lock_acquire('$path', '0')"), 'ZK003', "$what: which is no read-write lock");
	is($backend{$two}->errcode("SELECT zk_semaphore_acquire('$path', 3, '0')"), 'ZK003', "$what: and no semaphore");
	contender($one)->release($path);

	# The same if no client waits for the mutex.  An older server does not answer the query of a newer one.
	contender($one)->acquire("$dir/alone");
	is($backend{$two}->errcode("SELECT zk_semaphore_acquire('$dir/alone', 3)"), 'ZK003', "$what: a mutex is no semaphore");
	contender($one)->release("$dir/alone");
	leases($one, 1)->acquire($path);
	is($backend{$two}->errcode("SELECT zk_semaphore_acquire('$path', 5)"), '22023', "$what: another number of leases");
	leases($one, 1)->release($path);

	# Each server reads the other's queue, and can request and force a release.
	$path = "$dir/queue";
	contender($one)->acquire($path);
	contender($two)->send_acquire($path);
	$node{$two}->wait_for_ticket($path, 'queued');
	foreach my $reads ($one, $two)
	{
		is($node{$reads}->safe_psql('postgres', qq{SELECT "position", kind, holds, server, pid, database FROM zk_lock_queue('$path')}),
			"1|mutex|t|$one|" . $backend{$one}->pid . "|postgres\n2|mutex|f|$two|" . $backend{$two}->pid . '|postgres',
			"$what: the queue, as $reads reads it");
	}
	is($node{$two}->safe_psql('postgres', "SELECT zk_lock_revoke('$path')"), 1, "$what: a release is requested");
  SKIP:
	{
		skip "$what: a library from before the marks does not see the request", 1 unless $knows_marks{$one};
		ok($backend{$one}->wait_until("SELECT zk_lock_is_revoked('$path')"), "$what: and the holder sees it");
	}
	my $token = $backend{$one}->query("SELECT zk_lock_token('$path')");
	is($node{$two}->safe_psql('postgres', "SELECT zk_lock_force_release('$path')"), 1, "$what: a release is forced");
	is(contender($two)->answer, 't', "$what: and the other server has the lock");
	cmp_ok($backend{$two}->query("SELECT zk_lock_token('$path')"), '>', $token, "$what: with a greater token");
	is($backend{$one}->errcode("SELECT zk_lock_release('$path')"), '', "$what: the first gives up what it has lost");
	contender($two)->release($path);

	# When a server ends, its locks are free for the other.
	$path = "$dir/stop";
	contender($one)->acquire($path);
	contender($two)->send_acquire($path);
	$node{$two}->wait_for_ticket($path, 'queued');
	$backend{$one}->quit;
	$node{$one}->stop;
	is(contender($two)->answer, 't', "$what: a server that stops hands over");
	$node{$one}->start;
	$node{$one}->wait_until_connected;
	$backend{$one} = $node{$one}->backend;
	is(contender($one)->try($path), 'f', "$what: and queues when it is back");
	contender($two)->release($path);
}

# Jobs: the lock excludes both ways; a server without jobs leaves the records alone.
is($backend{new}->query("SELECT zk_run_once('/job', '2026-01-01 02:00+00')"), 't', 'a job');
is(contender('old')->try('/job'), 'f', 'a job: its lock excludes the other server');
$backend{new}->query("SELECT zk_lock_release('/job')");
is(contender('old')->acquire('/job'), 't', 'a job: the other server has its lock');
is($backend{new}->query("SELECT zk_run_once('/job', '2026-01-01 03:00+00')"), 'f', 'a job: which keeps the next run away');
contender('old')->release('/job');
is($backend{new}->query("SELECT zk_run_once('/job', '2026-01-01 02:00+00')"), 'f', 'a job: its record is still there');
is($backend{new}->query("SELECT zk_run_once('/job', '2026-01-01 03:00+00')"), 't', 'a job: and the next run');
$backend{new}->query("SELECT zk_lock_release('/job')");

# --- load ---

my %load = (
	mutex => [ "SELECT zk_lock_acquire('/load/mutex')", "SELECT zk_lock_release('/load/mutex')", 'x' ],
	read => [ "SELECT zk_read_lock_acquire('/load/rw')", "SELECT zk_read_lock_release('/load/rw')", 's' ],
	write => [ "SELECT zk_write_lock_acquire('/load/rw')", "SELECT zk_write_lock_release('/load/rw')", 'x' ],
	one => [ "SELECT zk_semaphore_acquire('/load/leases', 3)", "SELECT zk_semaphore_release('/load/leases')", 1 ],
	two => [ "SELECT zk_semaphore_acquire('/load/leases', 3, NULL, 2)", "SELECT zk_semaphore_release('/load/leases', 2)", 2 ]);

sub load
{
	my ($what, $rounds, @choices) = @_;
	my $history = History->new;
	foreach my $name ('new', 'old')
	{
		$history->hammer_mix($node{$name}, "$name$_", sub { @{ $load{ $choices[ rand @choices ] } } }, hold_us => 1000) foreach 1, 2;
	}
	$history->work_until(sub { $history->each_has($rounds) && $history->has_handovers(sub { substr $_[0], 0, 3 }, 'new', 'old') }, $what);
	my @problems = $history->problems(leases => 3);
	is(scalar(@problems), 0, "load: $what") or diag join "\n", splice @problems, 0, 10;
	note "load: $what: " . $history->summary;
	return;
}

load('mutex', 40, 'mutex');
load('read-write lock', 40, 'read', 'read', 'write');
load('semaphore', 40, 'one', 'two');

# --- an update under load ---

# Both databases are at 1.0.  The older server gets today's library, and then both databases go on to
# today's version, while two clients of each server take turns.
my $work = PostgreSQL::Test::Utils::tempdir;
append_to_file("$work/round.sql", q{
	BEGIN;
	SELECT zk_xact_lock_acquire('/update');
	INSERT INTO work SELECT zk_lock_token('/update'), clock_timestamp();
	UPDATE work SET ended = clock_timestamp() WHERE token = zk_lock_token('/update');
	COMMIT;
});
my @clients;
foreach my $name ('new', 'old')
{
	$node{$name}->safe_psql('postgres', 'CREATE DATABASE app');
	$node{$name}->safe_psql('app', q{CREATE EXTENSION zklock VERSION '1.0'; CREATE TABLE work (token bigint, began timestamptz, ended timestamptz)});
	push @clients, IPC::Run::start([ 'bash', '-c', 'until [[ -e $0/stop ]]; do
			psql -XqAt -v ON_ERROR_STOP=1 -v VERBOSITY=verbose -d "$1" -f "$0/round.sql" >/dev/null 2>>"$0/errors"
		done', $work, $node{$name}->connstr('app') ], '<', \'') foreach 1, 2;
}

sub rounds_of { return $node{ $_[0] }->safe_psql('app', 'SELECT count(*) FROM work'); }

sub goes_on
{
	my ($what) = @_;
	my %before = map { $_ => rounds_of($_) } keys %node;
	$node{$_}->poll_query_until('app', "SELECT count(*) >= $before{$_} + 15 FROM work") or die "$what: no rounds" foreach keys %node;
	ok(1, "update: both servers work $what");
	return;
}

goes_on('at 1.0');
$node{old}->configure(slurp_file($ENV{TEMP_CONFIG}) =~ /^(\w+) = '(.*)'$/mg);
$backend{old}->quit;
$node{old}->restart;
goes_on("with today's library");
my $version = $node{new}->safe_psql('postgres', q{SELECT extversion FROM pg_extension WHERE extname = 'zklock'});
foreach my $name ('old', 'new')
{
	$node{$name}->safe_psql('app', 'ALTER EXTENSION zklock UPDATE');
	goes_on("after the update on $name");
	is($node{$name}->safe_psql('app', q{SELECT extversion FROM pg_extension WHERE extname = 'zklock'}), $version, "update: $name is at $version");
}
append_to_file("$work/stop", '');
$_->finish foreach @clients;
$backend{old} = $node{old}->backend;

# A server that restarts ends its clients' statements, or makes them wait for ZooKeeper.  What psql says of
# its lost connections has no SQLSTATE.
my %errors;
$errors{$_}++ foreach slurp_file("$work/errors") =~ /(?:ERROR|FATAL|PANIC): +(\w{5}):/g;
is(join(' ', grep { !/^(?:08006|57P01|57P03)$/ } sort keys %errors), '', 'update: no errors but those of a server that restarts');
note 'update: ' . join ' ', map { "$_: $errors{$_}" } sort keys %errors;

my @turns = sort { $a->[1] <=> $b->[1] } map { [ split /\|/ ] } map { split /\n/, $node{$_}->safe_psql('app', q{
	SELECT token, extract(epoch FROM began), extract(epoch FROM ended) FROM work}) } keys %node;
cmp_ok(scalar(@turns), '>=', 100, 'update: rounds');
is(scalar(grep { $turns[$_][1] < $turns[ $_ - 1 ][2] || $turns[$_][0] <= $turns[ $_ - 1 ][0] } 1 .. $#turns), 0,
	'update: one after the other, and tokens grow');

foreach my $name (sort keys %node)
{
	$node{$name}->wait_until(q{SELECT count(*) FILTER (WHERE claim IS NOT NULL) = 0 FROM zk_locks});
	$backend{$name}->quit;
	$node{$name}->stop;
	unlike(slurp_file($node{$name}->logfile), qr/PANIC|TRAP|terminated by signal/, "$name: a quiet log");
}

done_testing();
