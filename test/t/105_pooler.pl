
# Through PgBouncer: transaction-level locks in transaction mode, session-level locks in session mode.

use strict;
use warnings;

use File::Basename qw(dirname);
use IO::Socket::INET;
use IO::Socket::UNIX;
use IPC::Run;
use POSIX ();
use Time::HiRes qw(sleep);

use PgBouncer;
use ZklockTest;

plan skip_all => 'there is no pgbouncer' unless PgBouncer->program;

my $zk = ZooKeeper->new;
my %settings = ('zklock.session_timeout' => '30s', 'zklock.linger' => 0);
my $node_a = ZklockNode->started('a', $zk, %settings);
my $node_b = ZklockNode->started('b', $zk, %settings);
my $b1 = $node_b->backend;

# A pool for each mode; all clients of a pool share a few connections to server a.
my $pooler = PgBouncer->new($node_a,
	one => 'pool_mode=transaction pool_size=1',
	two => 'pool_mode=transaction pool_size=2',
	sessions => 'pool_mode=session pool_size=1',
	off => 'dbname=pooled pool_mode=transaction pool_size=1',
	more => 'pool_mode=session pool_size=3',
	pgbouncer => 'server_reset_query = DISCARD ALL');

chomp(my $bindir = `pg_config --bindir`);
my $program = dirname($ENV{TEMP_CONFIG}) . "/stage$bindir/zklock-run";

sub pooled { my ($pool) = @_; return $pooler->backend($pool); }

sub claims { return $node_a->safe_psql('postgres', 'SELECT count(*) FROM zk_locks WHERE claim IS NOT NULL'); }

# --- transaction mode: clients take turns on one connection ---

my ($c1, $c2, $c3) = map { pooled('one') } 1 .. 3;
my @pids = map { $_->query('SELECT pg_backend_pid()') } $c1, $c2, $c3;
is("@pids", "$pids[0] $pids[0] $pids[0]", 'all clients share a connection');

my $last = 0;
foreach my $client ($c1, $c2, $c3)
{
	is($client->query(held('/x')), 'f', 'nothing is held from the client before');
	$client->query('BEGIN');
	is($client->query(q{SELECT zk_xact_lock_acquire('/x', '0')}), 't', 'acquired');
	is($b1->query(try('/x')), 'f', 'the other server is excluded');
	my $token = $client->query(token('/x'));
	cmp_ok($token, '>', $last, 'a greater token');
	$last = $token;
	is($client->run('COMMIT')->{err}, '', 'COMMIT');
	is(claims(), '0', 'the lock has ended with the transaction');
}
is($b1->query(acquire('/x')), 't', 'and then the other server has the lock');

# A client that waits for a lock keeps the connection, and the other clients wait for that.
$c1->query('BEGIN');
$c1->send(q{SELECT zk_xact_lock_acquire('/x')});
$node_a->wait_for_waiter('/x', 1);
$c2->send(q{SELECT zk_xact_lock_acquire('/x')});
$b1->query(release('/x'));
is($c1->result->{out}, 't', 'the waiter gets the lock');
ok(!$c2->is_done, 'the next client waits');
$c1->query('ROLLBACK');
is($c2->result->{out}, 't', 'until the transaction is over');
is(claims(), '0', 'a single statement is a transaction, too');

# A client that goes away in the middle.
$c1->query(q{BEGIN; SELECT zk_xact_lock_acquire('/gone')});
$c1->kill_client;
$zk->wait_for_children('/zklock/gone', 0);
is($b1->query(acquire('/gone', '1min')), 't', 'a client that is gone holds nothing');
$b1->query('SELECT zk_lock_release_all()');
is($c2->query(q{BEGIN; SELECT zk_xact_lock_acquire('/gone'); COMMIT}), 't', 'others go on');
$_->quit foreach $c2, $c3;

# --- many clients on two connections, and the other server: no update is lost ---

$node_a->safe_psql('postgres', 'CREATE TABLE counter (v int); INSERT INTO counter VALUES (0)');
my $script = PostgreSQL::Test::Utils::tempdir() . '/script.sql';
append_to_file($script, <<'END');
BEGIN;
SELECT zk_xact_lock_acquire('/counter');
SELECT v FROM counter \gset
UPDATE counter SET v = :v + 1;
COMMIT;
END
my @pgbench = ('pgbench', '-n', '-c', '6', '-f', $script, '-h', $pooler->directory, '-p', $pooler->port, '-U', 'postgres');
command_ok([ @pgbench, '-t', '20', 'two' ], 'many clients');
is($node_a->safe_psql('postgres', 'SELECT v FROM counter'), '120', 'no update is lost');
is(claims(), '0', 'and no claim is left');

# --- transaction mode: a lock that is lost ---

# If a client is idle in a transaction, the transaction ends with the connection to the server, and
# so does the client's connection; an idle connection to the server is not affected.
($c1, $c2) = map { pooled('one') } 1 .. 2;
$c1->query(q{BEGIN; SELECT zk_xact_lock_acquire('/lost')});
is($b1->query(q{SELECT zk_lock_force_release('/lost')}), '1', 'a lock is taken away');
$node_a->wait_until(q{SELECT count(*) = 0 FROM zk_locks WHERE path = '/lost' AND claim = 'held'});
isnt($c1->run('SELECT 1; COMMIT')->{err}, '', 'its transaction does not commit');
is($c2->query(q{BEGIN; SELECT zk_xact_lock_acquire('/lost'); COMMIT}), 't', 'the next client gets a good connection');
$c2->query(q{SELECT zk_xact_run_once('/jobs/pooled', '2024-05-05 02:00Z')});
is($c2->query(q{SELECT zk_xact_run_once('/jobs/pooled', '2024-05-05 02:00Z')}), 'f', 'a tick is used up, whichever client asks');
is(claims(), '0', 'and no lock is left of the run');
$c2->quit;

# --- transaction mode: what goes wrong with session-level locks ---

($c1, $c2) = map { pooled('one') } 1 .. 2;
is($c1->query(acquire('/stray')), 't', 'a session-level lock');
is($c2->query(try('/stray')), 't', 'the next client has it, too: both work at once');
is($c2->query(release('/stray')), 't', 'each can release the lock of the other');
$_->quit foreach $c1, $c2;
is(claims(), '1', 'and when both have gone, the lock is still held');
is($b1->query(try('/stray')), 'f', 'by no client');
$c1 = pooled('one');
is($c1->query('SELECT zk_lock_release_all()'), '1', 'until the connection is cleaned up');
$c1->quit;
$node_a->wait_until_clean('/stray');

my $always = PgBouncer->new($node_a, one => 'pool_mode=transaction pool_size=1',
	pgbouncer => "server_reset_query = DISCARD ALL\nserver_reset_query_always = 1");
$c1 = $always->backend('one');
is($c1->query(acquire('/reset')), 't', 'server_reset_query_always: acquired');
is($c1->query(held('/reset')), 'f', 'server_reset_query_always: and dropped behind the back of the client');
$c1->quit;
$always->stop;

# --- transaction mode: session-level locks are turned off ---

$node_a->safe_psql('postgres', 'CREATE DATABASE pooled');
$node_a->safe_psql('pooled', 'CREATE EXTENSION zklock; ALTER DATABASE pooled SET zklock.session_level = off');
$c1 = pooled('off');
is($c1->errcode(acquire('/off')), '42501', 'turned off: a session-level lock is refused');
is($c1->query(q{SELECT zk_xact_lock_acquire('/off')}), 't', 'turned off: a transaction-level lock is not');
$c1->quit;

# --- zklock-run ---

sub run_through
{
	my ($pool, @command) = @_;
	return run_at('host=' . $pooler->directory . ' port=' . $pooler->port, $pool, @command);
}

sub run_at
{
	my ($address, $pool, @command) = @_;
	my $conninfo = "$address user=postgres dbname=$pool";
	IPC::Run::run([ $program, '-d', $conninfo, '-t', '0', '/run', @command ], '<', \'', '>', \my $out, '2>', \my $err,
		IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	return ($? >> 8) . " $out$err";
}

my @proxies;

# The address of a proxy in front of servers, which take turns.  It passes on what "answer" makes of an
# answer, which knows the number of the connection.
sub proxy
{
	my ($answer, @sockets) = @_;
	my $listener = IO::Socket::INET->new(Listen => 10, LocalAddr => '127.0.0.1') or die "could not listen: $!";
	my $pid = fork // die "could not fork: $!";
	if (!$pid)
	{
		setpgrp;
		local $SIG{CHLD} = 'DEFAULT';	# PostgreSQL::Test::Utils may have a handler, and the end of a copy would end accept()
		for (my $n = 1; my $client = $listener->accept; $n++)
		{
			my $server = IO::Socket::UNIX->new($sockets[ ($n - 1) % @sockets ]) or POSIX::_exit(1);
			copy_all($client, $server, sub { return $_[0]; });
			copy_all($server, $client, sub { return $answer->($_[0], $n); });
		}
		POSIX::_exit(0);
	}
	push @proxies, $pid;
	return 'host=127.0.0.1 port=' . $listener->sockport;
}

sub copy_all
{
	my ($from, $to, $pass) = @_;
	return if fork // die "could not fork: $!";
	while (sysread $from, my $data, 65536)
	{
		syswrite $to, $pass->($data);
	}
	shutdown $to, 1;
	POSIX::_exit(0);
}

END
{
	my $status = $?;
	kill 'KILL', map { -$_ } @proxies;
	waitpid $_, 0 foreach @proxies;
	$? = $status;
}

# A pool that is busy gives the connections in no certain order.
foreach my $pool ('one', 'two')
{
	my $result = run_through($pool, 'echo', 'ran');
	like($result, qr/^69 zklock-run: error: the pooler gives this connection to other clients/, "zklock-run, transaction mode: refused in pool $pool");
	like($result, qr/hint: .* session mode\./, "zklock-run, transaction mode: with advice in pool $pool");
}
append_to_file("$script.busy", "SELECT 'busy';\n");
my ($busy_out, $busy_err);
my $busy = IPC::Run::start([ (map { $_ eq $script ? "$script.busy" : $_ } @pgbench), '-T', '600', 'two' ], '>', \$busy_out, '2>', \$busy_err);
$node_a->wait_until(q{SELECT count(*) > 0 FROM pg_stat_activity WHERE query = $$SELECT 'busy';$$}) or diag($busy_err);
my $refusal = qr/^69 zklock-run: error: the pooler gives/;
like(run_through('two', 'echo', 'ran'), $refusal, 'zklock-run, transaction mode: refused while the pool is busy') foreach 1 .. 10;
$busy->kill_kill(grace => 0);

# The backends serve the clients in turn.  So each of the two connections may have the same backend in many rounds, and the
# pooler is found out before the lock is requested.
$b1->query(acquire('/run'));
my %circle = (pair => 'pool_mode=transaction pool_size=2', trio => 'pool_mode=transaction pool_size=3', pgbouncer => 'server_round_robin = 1');
my $circle = PgBouncer->new($node_a, %circle);
sub occupied { my ($pool, $n) = @_; return map { my $client = $circle->backend($pool); $client->query('BEGIN; SELECT 1'); $client } 1 .. $n; }
sub leave { $_->query('COMMIT') foreach @_; return; }
my @occupying = occupied('pair', 2);
leave(@occupying);
like(run_at('host=' . $circle->directory . ' port=' . $circle->port, 'pair', 'echo', 'ran'), $refusal, 'zklock-run, transaction mode: refused by backends in turn');
$b1->query(release('/run'));
$_->quit foreach @occupying;

# The second connection is the one by which zklock-run finds out.
sub socket_of { my ($server) = @_; return $server->directory . '/.s.PGSQL.' . $server->port; }
my $late = proxy(sub { my ($data, $n) = @_; sleep 1.5 if $n == 2; return $data; }, socket_of($pooler));
like(run_at($late, 'one', 'echo', 'ran'), qr/^69 /, 'zklock-run, transaction mode: refused although an answer comes late');

# The second connection reaches another process of the pooler, whose backends are other ones.
my $second = PgBouncer->new($node_a, one => 'pool_mode=transaction pool_size=1');
my $both = proxy(sub { return $_[0]; }, socket_of($pooler), socket_of($second));
my $directory = PostgreSQL::Test::Utils::tempdir();
my $run = IPC::Run::start([ $program, '-d', "$both user=postgres dbname=one", '/run', 'sh', '-c',
		'touch begun; until [ -e end ]; do sleep 0.05; done; echo ran' ],
	init => sub { chdir $directory or die }, '<', \'', '>', \my $run_out, '2>', \my $run_err);
$zk->wait_until(sub { $run->pump_nb; -e "$directory/begun" || !$run->pumpable }, 'a command to begin');
ok(-e "$directory/begun", 'zklock-run, a pooler of two processes: the command of one run begins') or diag($run_err);
like(run_at($both, 'one', 'echo', 'ran'), qr/^69 zklock-run: error: the pooler gives/, 'zklock-run, a pooler of two processes: refused in the backend of another run');
append_to_file("$directory/end", '');
$run->finish;
is(($run->full_result || 0) . " $run_out$run_err", "0 ran\n", '... which goes on');
$second->stop;

# If the pooler is found out only by the lock, that is not left behind, though another backend comes first.
$second = PgBouncer->new($node_a, %circle);
my $apart = proxy(sub { return $_[0]; }, socket_of($circle), socket_of($second));
foreach my $options ([], [ '--once=now', '-t', '5 min' ])
{
	@occupying = occupied('trio', 2);
	$b1->query(acquire('/late'));
	$run = IPC::Run::start([ $program, '-d', "$apart user=postgres dbname=trio", @$options, '/late', 'echo', 'ran' ], '<', \'', '>', \$run_out, '2>', \$run_err);
	$node_a->wait_for_waiter('/late', 1);
	leave(@occupying);
	$b1->query(release('/late'));
	$run->finish;
	like(($run->full_result >> 8) . " $run_out$run_err", $refusal, "zklock-run @$options, found out by its lock: refused");
	is(claims(), '0', '... and the lock is released in its backend');
	$_->quit foreach @occupying;
}
is($node_a->safe_psql('postgres', q{SELECT state FROM zk_jobs WHERE path = '/late'}), 'failed', '... and the run of the job has failed');
$_->stop foreach $second, $circle;

# The server falls silent in the midst of an answer.
my $silent = proxy(sub { my ($data) = @_; return -e "$directory/silent" ? substr($data, 0, -6) : $data; }, $node_a->host . '/.s.PGSQL.' . $node_a->port);
my $result = run_at($silent, 'postgres', 'sh', '-c', "touch $directory/silent; exec sleep 60");
like($result, qr/^79 .*The server did not confirm it in time\./s, 'zklock-run: half an answer is no answer');

is(run_through($_, 'echo', 'ran'), "0 ran\n", "zklock-run, session mode: runs in pool $_") foreach 'sessions', 'more';
is($b1->query(acquire('/run')), 't', 'zklock-run, session mode: has released the lock');
is(run_through('more', 'echo', 'ran'), '75 ', 'zklock-run, session mode: excluded');
$b1->query(release('/run'));

# --- session mode: the reset query drops what a client leaves behind ---

$c1 = pooled('sessions');
my $pid = $c1->query('SELECT pg_backend_pid()');
is($c1->query(acquire('/s')), 't', 'session mode: acquired');
is($c1->query(acquire('/s')), 't', 'session mode: twice');
is($c1->query(acquire('/s2')), 't', 'session mode: and another');
is($c1->query(held('/s')), 't', 'session mode: held beyond the transaction');
is($b1->query(try('/s')), 'f', 'session mode: excludes the other server');
$b1->send(acquire('/s'));
$zk->wait_for_children('/zklock/s', 2);
$c1->quit;
is($b1->result->{out}, 't', 'session mode: freed when the client has gone');
$zk->wait_for_children('/zklock/s2', 0);
is(claims(), '0', 'session mode: and all else, too');

$c2 = pooled('sessions');
is($c2->query('SELECT pg_backend_pid()'), $pid, 'session mode: the connection is the same');
is($c2->query(held('/s')), 'f', 'session mode: the next client holds nothing');
is($c2->query(try('/s2')), 't', 'session mode: and can acquire');
is($c2->run(release('/s'))->{out}, 'f', 'session mode: but not release a lock that it does not hold');
is($c2->query(release('/s2')), 't', 'session mode: only its own');

# The connection goes on when the client dies in the middle of a job, or forgets to say that it is done.
foreach my $how ('kill_client', 'quit')
{
	is($c2->query("SELECT zk_run_once('/jobs/$how', '2024-05-05 02:00Z')"), 't', "session mode, $how: runs");
	$c2->$how;
	$node_b->wait_until("SELECT state = 'failed' FROM zk_jobs() WHERE path = '/jobs/$how'");
	pass("session mode, $how: the run has failed");
	$c2 = pooled('sessions');
}
$c2->quit;

$b1->query('SELECT zk_lock_release_all()');
$b1->quit;
$pooler->stop;
$_->stop foreach $node_a, $node_b;
is_deeply([ grep { /lock-/ } @{ $zk->tree('/zklock') } ], [], 'no znode is left');

done_testing();
