
# Through PgBouncer: transaction-level locks in transaction mode, session-level locks in session mode.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(usleep);

use PostgreSQL::Test::Utils;

use ZklockBackend;
use ZklockNode;
use ZooKeeper;

my ($program) = grep { -x } map { "$_/pgbouncer" } split(/:/, $ENV{PATH}), '/usr/sbin';
plan skip_all => 'there is no pgbouncer' unless $program;

my $zk = ZooKeeper->new;
my %settings = ('zklock.session_timeout' => '30s', 'zklock.linger' => 0);
my $node_a = ZklockNode->started('a', $zk, %settings);
my $node_b = ZklockNode->started('b', $zk, %settings);
my $b1 = $node_b->backend;
my $user = getpwuid $>;

# A pool for each mode; all of one pool goes over the same few connections to server a.
my $directory = PostgreSQL::Test::Utils::tempdir_short();
my $port = PostgreSQL::Test::Cluster::get_free_port();
my $server = 'host=' . $node_a->host . ' port=' . $node_a->port . " user=$user dbname=postgres";
append_to_file("$directory/pgbouncer.ini", <<"END");
[databases]
one = $server pool_mode=transaction pool_size=1
two = $server pool_mode=transaction pool_size=2
sessions = $server pool_mode=session pool_size=1

[pgbouncer]
listen_addr =
listen_port = $port
unix_socket_dir = $directory
auth_type = any
server_reset_query = DISCARD ALL
ignore_startup_parameters = extra_float_digits
logfile = $directory/pgbouncer.log
END

my $pgbouncer = fork // die "could not fork: $!";
if ($pgbouncer == 0)
{
	open STDIN, '<', '/dev/null';
	open STDOUT, '>', "$directory/output";
	open STDERR, '>&', \*STDOUT;
	chdir $directory;
	exec $program, "$directory/pgbouncer.ini" or POSIX::_exit(127);
}

END
{
	my $status = $?;
	if ($pgbouncer)
	{
		kill 'KILL', $pgbouncer;
		waitpid $pgbouncer, 0;
	}
	$? = $status;
}

$zk->wait_until(sub { -S "$directory/.s.PGSQL.$port" }, 'pgbouncer to listen');

sub pooled
{
	my ($pool) = @_;
	return $node_a->backend(
		extra_params => [ '-d', "host=$directory port=$port user=$user dbname=$pool" ]);
}

sub claims { return $node_a->safe_psql('postgres', 'SELECT count(*) FROM zk_locks WHERE claim IS NOT NULL'); }

# --- transaction mode: clients take turns on one connection ---

my ($c1, $c2, $c3) = map { pooled('one') } 1 .. 3;
my @pids = map { $_->query('SELECT pg_backend_pid()') } $c1, $c2, $c3;
is("@pids", "$pids[0] $pids[0] $pids[0]", 'all clients share a connection');

my $last = 0;
foreach my $client ($c1, $c2, $c3)
{
	is($client->query(q{SELECT zk_lock_is_held('/x')}), 'f', 'nothing is held by who went before');
	$client->query('BEGIN');
	is($client->query(q{SELECT zk_xact_lock_acquire('/x', '0')}), 't', 'acquired');
	is($b1->query(q{SELECT zk_lock_acquire('/x', '0')}), 'f', 'the other server is excluded');
	my $token = $client->query(q{SELECT zk_lock_token('/x')});
	cmp_ok($token, '>', $last, 'a greater token');
	$last = $token;
	is($client->run('COMMIT')->{err}, '', 'COMMIT');
	is(claims(), '0', 'the lock has ended with the transaction');
}
is($b1->query(q{SELECT zk_lock_acquire('/x')}), 't', 'and then the other server has the lock');

# Who waits in the lock keeps the connection, and the others wait for that.
$c1->query('BEGIN');
$c1->send(q{SELECT zk_xact_lock_acquire('/x')});
$node_a->wait_for_waiter('/x', 1);
$c2->send(q{SELECT zk_xact_lock_acquire('/x')});
$b1->query(q{SELECT zk_lock_release('/x')});
is($c1->result->{out}, 't', 'who waited gets the lock');
ok(!$c2->is_done, 'the next client waits');
$c1->query('ROLLBACK');
is($c2->result->{out}, 't', 'until the transaction is over');
is(claims(), '0', 'a single statement is a transaction, too');

# A client that goes away in the middle.
$c1->query(q{BEGIN; SELECT zk_xact_lock_acquire('/gone')});
$c1->kill_client;
$zk->wait_for_children('/zklock/gone', 0);
is($b1->query(q{SELECT zk_lock_acquire('/gone', '1min')}), 't', 'a client that is gone holds nothing');
$b1->query('SELECT zk_lock_release_all()');
is($c2->query(q{BEGIN; SELECT zk_xact_lock_acquire('/gone'); COMMIT}), 't', 'others go on');
$_->quit foreach $c2, $c3;

# --- many clients on two connections, and the other server: no update is lost ---

$node_a->safe_psql('postgres', 'CREATE TABLE counter (v int); INSERT INTO counter VALUES (0)');
append_to_file("$directory/script.sql", <<'END');
BEGIN;
SELECT zk_xact_lock_acquire('/counter');
SELECT v FROM counter \gset
UPDATE counter SET v = :v + 1;
COMMIT;
END
command_ok(
	[
		'pgbench', '-n', '-c', '6', '-t', '20', '-f', "$directory/script.sql",
		'-h', $directory, '-p', $port, '-U', $user, 'two'
	],
	'many clients');
is($node_a->safe_psql('postgres', 'SELECT v FROM counter'), '120', 'no update is lost');
is(claims(), '0', 'and no claim is left');

# --- session mode: the reset query drops what a client leaves behind ---

$c1 = pooled('sessions');
my $pid = $c1->query('SELECT pg_backend_pid()');
is($c1->query(q{SELECT zk_lock_acquire('/s')}), 't', 'session mode: acquired');
is($c1->query(q{SELECT zk_lock_acquire('/s')}), 't', 'session mode: twice');
is($c1->query(q{SELECT zk_lock_acquire('/s2')}), 't', 'session mode: and another');
is($c1->query(q{SELECT zk_lock_is_held('/s')}), 't', 'session mode: held beyond the transaction');
is($b1->query(q{SELECT zk_lock_acquire('/s', '0')}), 'f', 'session mode: excludes the other server');
$b1->send(q{SELECT zk_lock_acquire('/s')});
$zk->wait_for_children('/zklock/s', 2);
$c1->quit;
is($b1->result->{out}, 't', 'session mode: freed when the client has gone');
$zk->wait_for_children('/zklock/s2', 0);
is(claims(), '0', 'session mode: and all else, too');

$c2 = pooled('sessions');
is($c2->query('SELECT pg_backend_pid()'), $pid, 'session mode: the connection is the same');
is($c2->query(q{SELECT zk_lock_is_held('/s')}), 'f', 'session mode: the next client holds nothing');
is($c2->query(q{SELECT zk_lock_acquire('/s2', '0')}), 't', 'session mode: and can acquire');
is($c2->run(q{SELECT zk_lock_release('/s')})->{out}, 'f', 'session mode: but not release what is not its own');
is($c2->query(q{SELECT zk_lock_release('/s2')}), 't', 'session mode: only what is');
$c2->quit;

$b1->query('SELECT zk_lock_release_all()');
$b1->quit;
kill 'INT', $pgbouncer;
waitpid $pgbouncer, 0;
$pgbouncer = undef;
$_->stop foreach $node_a, $node_b;
is_deeply([ grep { /lock-/ } @{ $zk->tree('/zklock') } ], [], 'no znode is left');

done_testing();
