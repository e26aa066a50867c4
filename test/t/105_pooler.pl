
# Through PgBouncer: transaction-level locks in transaction mode, session-level locks in session mode.

use strict;
use warnings;

use Test::More;

use PostgreSQL::Test::Utils;

use PgBouncer;
use ZklockNode;
use ZooKeeper;

plan skip_all => 'there is no pgbouncer' unless PgBouncer->program;

my $zk = ZooKeeper->new;
my %settings = ('zklock.session_timeout' => '30s', 'zklock.linger' => 0);
my $node_a = ZklockNode->started('a', $zk, %settings);
my $node_b = ZklockNode->started('b', $zk, %settings);
my $b1 = $node_b->backend;

# A pool for each mode; all of one pool goes over the same few connections to server a.
my $pooler = PgBouncer->new($node_a,
	one => 'pool_mode=transaction pool_size=1',
	two => 'pool_mode=transaction pool_size=2',
	sessions => 'pool_mode=session pool_size=1',
	pgbouncer => 'server_reset_query = DISCARD ALL');

sub pooled { my ($pool) = @_; return $pooler->backend($pool); }

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
my $script = PostgreSQL::Test::Utils::tempdir() . '/script.sql';
append_to_file($script, <<'END');
BEGIN;
SELECT zk_xact_lock_acquire('/counter');
SELECT v FROM counter \gset
UPDATE counter SET v = :v + 1;
COMMIT;
END
command_ok(
	[
		'pgbench', '-n', '-c', '6', '-t', '20', '-f', $script,
		'-h', $pooler->directory, '-p', $pooler->port, '-U', 'postgres', 'two'
	],
	'many clients');
is($node_a->safe_psql('postgres', 'SELECT v FROM counter'), '120', 'no update is lost');
is(claims(), '0', 'and no claim is left');

# --- transaction mode: a lock that is lost ---

# The transaction of a client that is idle in it ends with the connection to the server, and
# the client's connection with it; an idle connection to the server is not concerned.
($c1, $c2) = map { pooled('one') } 1 .. 2;
$c1->query(q{BEGIN; SELECT zk_xact_lock_acquire('/lost')});
is($b1->query(q{SELECT zk_lock_force_release('/lost')}), '1', 'a lock is taken away');
$node_a->wait_until(q{SELECT count(*) = 0 FROM zk_locks WHERE path = '/lost' AND claim = 'held'});
isnt($c1->run('SELECT 1; COMMIT')->{err}, '', 'its transaction does not commit');
is($c2->query(q{BEGIN; SELECT zk_xact_lock_acquire('/lost'); COMMIT}), 't', 'the next client gets a good connection');
$c2->query(q{SELECT zk_xact_run_once('/jobs/pooled', '2024-05-05 02:00Z')});
is($c2->query(q{SELECT zk_xact_run_once('/jobs/pooled', '2024-05-05 02:00Z')}), 'f', 'a tick is used up, whoever asks');
is(claims(), '0', 'and no lock is left of the run');
$c2->quit;

# --- transaction mode: what goes wrong with session-level locks ---

($c1, $c2) = map { pooled('one') } 1 .. 2;
is($c1->query(q{SELECT zk_lock_acquire('/stray')}), 't', 'a session-level lock');
is($c2->query(q{SELECT zk_lock_acquire('/stray', '0')}), 't', 'the next client has it, too: both work at once');
is($c2->query(q{SELECT zk_lock_release('/stray')}), 't', 'each can release what is not its own');
$_->quit foreach $c1, $c2;
is(claims(), '1', 'and when both have gone, the lock is still held');
is($b1->query(q{SELECT zk_lock_acquire('/stray', '0')}), 'f', 'by no client');
$c1 = pooled('one');
is($c1->query('SELECT zk_lock_release_all()'), '1', 'until the connection is cleaned up');
$c1->quit;
$node_a->wait_until_clean('/stray');

my $always = PgBouncer->new($node_a, one => 'pool_mode=transaction pool_size=1',
	pgbouncer => "server_reset_query = DISCARD ALL\nserver_reset_query_always = 1");
$c1 = $always->backend('one');
is($c1->query(q{SELECT zk_lock_acquire('/reset')}), 't', 'server_reset_query_always: acquired');
is($c1->query(q{SELECT zk_lock_is_held('/reset')}), 'f', 'server_reset_query_always: and dropped behind the back of the client');
$c1->quit;
$always->stop;

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
$pooler->stop;
$_->stop foreach $node_a, $node_b;
is_deeply([ grep { /lock-/ } @{ $zk->tree('/zklock') } ], [], 'no znode is left');

done_testing();
