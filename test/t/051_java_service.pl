
# A Java service on Curator takes turns with two servers, by demo/Service.java: the service's
# LeaderSelector with zklock.leader_of, and its InterProcessMutex with zk_lock_acquire.

use strict;
use warnings;

use IPC::Run;
use Time::HiRes qw(usleep);
use FindBin;

use FaultNet;
use HoldingProxy;
use PgWire;
use ZklockTest;

my ($leader, $mutex) = ('/leaders/cron', '/jobs/turn');
my $zk = ZooKeeper->new;
my %settings = ('zklock.session_timeout' => '20s', 'zklock.leader_of' => $leader, 'zklock.linger' => 0);
my $north = ZklockNode->started('north', $zk, %settings, 'listen_addresses' => '127.0.0.1');
my $south = ZklockNode->started('south', $zk, %settings);

my $net = FaultNet->new;
my $hosts = $net->link('service', 'zk', $zk->address(1));
$net->run;

# The store that all of them write to is a database on north.  Each row has the token that its
# transaction has presented.
$north->safe_psql('postgres', q{
	CREATE TABLE turns (id bigint GENERATED ALWAYS AS IDENTITY, who text, resource text, token bigint);
	CREATE FUNCTION note(who text, resource text) RETURNS void LANGUAGE sql AS $$
		INSERT INTO turns (who, resource, token) SELECT note.who, f.resource, f.token FROM zk_fences f WHERE f.resource = note.resource $$});

sub rows { my ($condition) = @_; return $north->safe_psql('postgres', "SELECT count(*) FROM turns WHERE $condition"); }

# --- the service ---

my @services;

sub start_service
{
	my ($kind, $path, $port) = @_;
	my %service = (out => '', err => '');
	$service{harness} = IPC::Run::start([ 'java', '-XX:TieredStopAtLevel=1', '-Dcurator-default-session-timeout=8000',
			'-cp', join(':', map { "/usr/share/java/$_.jar" } 'curator-recipes', 'slf4j-nop', 'postgresql'),
			"$FindBin::RealBin/../../demo/Service.java", $kind, $hosts, "/zklock$path",
			"jdbc:postgresql://127.0.0.1:$port/postgres?connectTimeout=0&user=postgres", "SELECT note('service', '/zklock$path')" ],
		'<', \undef, '>', \$service{out}, '2>', \$service{err},
		$service{timer} = IPC::Run::timer($PostgreSQL::Test::Utils::timeout_default));
	push @services, \%service;
	return \%service;
}

# Wait for a line of the output that matches, and drop the output up to it.
sub wait_for_word
{
	my ($service, $pattern) = @_;
	until ($service->{out} =~ /$pattern.*\n/)
	{
		die "the service has ended: $service->{err}" unless $service->{harness}->pumpable;
		die "timed out waiting for $pattern" if $service->{timer}->is_expired;
		$service->{harness}->pump;
	}
	my ($word) = $service->{out} =~ $pattern;
	$service->{out} =~ s/.*?$pattern.*?\n//s;
	return $word;
}

sub signal_service { my ($service, $signal) = @_; kill $signal, map { $_->{PID} } @{ $service->{harness}{KIDS} }; return; }

END
{
	my $status = $?;
	foreach (@services) { signal_service($_, 'CONT'); $_->{harness}->kill_kill; }
	$? = $status;
}

# --- the jobs of the servers: on the leader only, with its token ---

my $directory = PostgreSQL::Test::Utils::tempdir_short();
my @jobs;
foreach my $node ($north, $south)
{
	my $pid = fork // die "could not fork: $!";
	push @jobs, $pid;
	next if $pid;
	eval { run_job($node) };
	append_to_file("$directory/failed", $@);
	POSIX::_exit(0);
}

sub run_job
{
	my ($node) = @_;
	my $own = PgWire->new($node->host, $node->port, 'job');
	my $store = PgWire->new($north->host, $north->port, 'store');
	while (1)
	{
		my $asked = $own->query("BEGIN; SELECT zk_lock_token('$leader') WHERE zk_is_leader('$leader')");
		my $token = $asked->{error} ? undef : $asked->{rows}[0];
		if ($token)
		{
			my $name = $node->name;
			my $done = $store->query("BEGIN; SELECT zk_fence('/zklock$leader', $token->[0]); SELECT note('$name', '/zklock$leader'); COMMIT");

			# The leadership may have ended meanwhile; then the fence refuses the work.
			if ($done->{error} && $done->{message} =~ /is too old for resource/) { $store->query('ROLLBACK'); }
			elsif ($done->{error}) { die "$name: $done->{message}\n"; }
		}
		$own->query('COMMIT');
		usleep(10_000);
	}
	return;
}

END
{
	my $status = $?;
	kill 'KILL', @jobs;
	waitpid $_, 0 foreach @jobs;
	$? = $status;
}

my $seen = 0;

sub wait_for_turn
{
	my ($who) = @_;
	$north->wait_until("SELECT count(*) >= 5 FROM turns WHERE who = '$who' AND id > $seen");
	$seen = $north->safe_psql('postgres', 'SELECT max(id) FROM turns');
	return pass("$who works");
}

sub wait_for_line
{
	my ($expected) = @_;
	return ok($north->poll_query_until('postgres',
		q{SELECT string_agg(coalesce(server, client), ' ' ORDER BY position) FROM zk_leaders}, $expected), $expected);
}

sub resign { my ($node) = @_; return is($node->safe_psql('postgres', "SELECT zk_leader_resign('$leader')"), 't', $node->name . ' resigns'); }

# --- leadership ---

wait_for_line('north south');
my $service = start_service('lead', $leader, $north->port);
wait_for_line('north south curator');
wait_for_turn('north');
resign($north);
wait_for_turn('south');
resign($south);
my $token = wait_for_word($service, qr/leads with token (\d+)/);
wait_for_turn('service');
wait_for_line('curator north south');

# The service's connection falls silent.
$net->set('service', 'zk', 'hold');
$net->set('zk', 'service', 'hold');
wait_for_word($service, qr/does not lead any more/);
pass('the service stops by itself');
wait_for_turn('north');
$net->set($_->[0], $_->[1], 'open') foreach [ 'service', 'zk' ], [ 'zk', 'service' ];
wait_for_line('north south curator');
resign($north);
wait_for_turn('south');
resign($south);
cmp_ok(wait_for_word($service, qr/leads with token (\d+)/), '>', $token, 'the service leads again, with a greater token');
wait_for_turn('service');
signal_service($service, 'TERM');
$service->{harness}->finish;
wait_for_turn('north');

is($service->{err}, '', 'no work of the service was refused');
ok(!-e "$directory/failed", 'no job has failed') or diag(slurp_file("$directory/failed"));
is($north->safe_psql('postgres', qq{
	SELECT count(*) FROM turns AS late JOIN turns AS early
	ON late.id > early.id AND late.token < early.token AND late.resource = early.resource}),
	'0', 'no old leader has worked after a later one');
is(rows("resource = '/zklock$leader' AND token IS NULL"), '0', 'each row has a token');
is($north->safe_psql('postgres', q{
	SELECT string_agg(who, ' ' ORDER BY token) FROM (SELECT DISTINCT who, token FROM turns) AS t}),
	'north south service north south service north', 'they led by turns');

# --- a mutex ---

my $backend = $south->backend;
my $proxy = HoldingProxy->new('127.0.0.1:' . $north->port);
is($backend->query("SELECT zk_lock_acquire('$mutex')"), 't', 'a server has the mutex');
$service = start_service('lock', $mutex, ($proxy->address =~ /(\d+)$/));
$south->wait_until_contended($mutex);
is(rows("resource = '/zklock$mutex'"), '0', 'the service waits');
$proxy->hold('requests');
$backend->query("SELECT zk_lock_release('$mutex')");
$token = wait_for_word($service, qr/has the lock with token (\d+)/);
is($backend->query("SELECT zk_lock_acquire('$mutex', '0')"), 'f', 'then the service has the mutex');

# The service stands still until its session has expired, while its write is still under way.  (The
# driver waits for a connection as long as it takes.)
signal_service($service, 'STOP');
is($backend->query("SELECT zk_lock_acquire('$mutex')"), 't', 'the session expires: the server has the mutex');
cmp_ok(my $newer = $backend->query("SELECT zk_lock_token('$mutex')"), '>', $token, 'with a greater token');
$north->safe_psql('postgres', "BEGIN; SELECT zk_fence('/zklock$mutex', $newer); SELECT note('south', '/zklock$mutex'); COMMIT");
signal_service($service, 'CONT');
$proxy->pass;
$service->{harness}->finish;
like($service->{err}, qr/ERROR: token $token is too old for resource/, 'the late write of the service is refused');
is(rows("resource = '/zklock$mutex' AND who = 'service'"), '0', 'and has left nothing');
$backend->query("SELECT zk_lock_release('$mutex')");

$proxy->pass;
$service = start_service('lock', $mutex, $north->port);
ok($service->{harness}->finish, 'when the service comes back, it has its turn') or diag($service->{err});
is(rows("resource = '/zklock$mutex' AND who = 'service'"), '1', 'and has worked once');
is($backend->query("SELECT zk_lock_acquire('$mutex', '10 s')"), 't', 'and has released the mutex');

$backend->quit;
kill 'KILL', @jobs;
$_->stop foreach $north, $south;
done_testing();
