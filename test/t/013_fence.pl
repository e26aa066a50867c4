
# The zombie: a holder that sleeps past the end of its session, and goes on with its work after
# another holder has had the lock and has committed.  The data is on a third server, which knows
# nothing of the locks.

use strict;
use warnings;

use ZklockTest;

my $zk = ZooKeeper->new;
my $node_a = ZklockNode->started('a', $zk);
my $node_b = ZklockNode->started('b', $zk);
my $data = ZklockNode->started('data', $zk, init => [ allows_streaming => 1 ]);
my ($a1, $b1) = map { $_->backend } $node_a, $node_b;
my ($of_a, $of_b) = map { $data->backend } 1, 2;
$data->safe_psql('postgres', 'CREATE TABLE account (balance int); INSERT INTO account VALUES (0)');

sub fenced
{
	my ($token, $amount) = @_;
	return "BEGIN; SELECT zk_fence('account', $token); UPDATE account SET balance = balance + $amount";
}
sub balance { return $data->safe_psql('postgres', 'SELECT balance FROM account'); }

# The worker stands still, and its session ends.
sub falls_asleep
{
	my $session = $node_a->status('session_id');
	kill 'STOP', $node_a->worker_pid;
	$zk->kill_session($session);
	return;
}

# The whole of server a sleeps, its worker included, after it has begun a transaction on the other
# server.
my $old = $a1->query(acquire('/account')) && $a1->query(token('/account'));
$of_a->query('BEGIN');
falls_asleep();
is($b1->query(acquire('/account', '1min')), 't', 'the session ends, and the next one has the lock');
my $new = $b1->query(token('/account'));
cmp_ok($new, '>', $old, 'with a greater token');
$of_b->query(fenced($new, 100));
$of_b->query('COMMIT');
kill 'CONT', $node_a->worker_pid;

my $result = $of_a->run("SELECT zk_fence('account', $old)");
is($result->{errcode}, 'ZK001', 'the zombie is refused');
like($result->{err}, qr/token $old is too old for resource "account"/, 'and told why');
$of_a->query('ROLLBACK');
is(balance(), 100, 'nothing of it is there');

# The zombie has written, and sleeps before its commit: the next holder waits until that is decided.
$b1->query(release('/account'));
$node_a->wait_until(q{SELECT bool_and(claim = 'lost') FROM zk_locks WHERE path = '/account'});
$a1->run('SELECT 1');			# which the loss may cancel
$a1->run(release('/account'));
$node_a->wait_until_connected;
$old = $a1->query(acquire('/account')) && $a1->query(token('/account'));
$of_a->query(fenced($old, 1));
falls_asleep();
is($b1->query(acquire('/account', '1min')), 't', 'the next one has the lock again');
$new = $b1->query(token('/account'));
$of_b->send("SELECT zk_fence('account', $new)");
$data->wait_until('SELECT count(*) = 1 FROM pg_locks WHERE NOT granted AND pid = ' . $of_b->pid);
ok(!$of_b->is_done, 'but may not write yet');
$of_a->query('COMMIT');
is($of_b->result->{errcode}, '', "until the old holder's writes are decided");
is(balance(), 101, 'and can be seen');
kill 'CONT', $node_a->worker_pid;

# Without the fence nothing would stop the zombie: that is what the fence is for.
is($of_a->errcode(fenced($old, 1000)), 'ZK001', 'from then on the old one is refused');
$of_a->query('ROLLBACK');
is($of_a->errcode('UPDATE account SET balance = balance + 1000'), '', 'without the fence it is not');
is(balance(), 1101, 'and its writes are there');

# A standby and a dump have the fence, too.
my $standby = ZklockNode->standby('standby', $data);
$data->wait_for_catchup($standby);
is($standby->safe_psql('postgres', 'SELECT token FROM zk_fences'), $new, 'the standby knows the greatest token');
$standby->stop;
my ($dump) = run_command([ 'pg_dump', '--data-only', '-h', $data->host, '-p', $data->port, '-U', 'postgres', 'postgres' ]);
like($dump, qr/^account\t$new$/m, 'and so does a dump');

# The owner of a database dumps and restores it without being a superuser, except that a superuser
# has to create the extension.
$data->safe_psql('postgres', 'CREATE ROLE owner LOGIN');
sub made_for_owner
{
	my ($database) = @_;
	$data->safe_psql('postgres', "CREATE DATABASE $database OWNER owner");
	$data->safe_psql($database, 'CREATE EXTENSION zklock');
	return;
}
sub as_owner { my ($database, $sql) = @_; return $data->safe_psql($database, $sql, extra_params => [ '-U', 'owner' ]); }

my @connection = ('-h', $data->host, '-p', $data->port, '-U', 'owner');
my $file = "${PostgreSQL::Test::Utils::tmp_check}/owned.dump";
made_for_owner($_) foreach 'owned', 'restored';
as_owner('owned', "CREATE TABLE account (balance int); INSERT INTO account VALUES (7); SELECT zk_fence('account', 1000)");
command_ok([ 'pg_dump', @connection, '-Fc', '-f', $file, 'owned' ], 'the owner of a database dumps it');
command_ok([ 'pg_restore', @connection, '--exit-on-error', '--no-comments', '-d', 'restored', $file ],
	'and restores it into another');
is(as_owner('restored', 'SELECT balance, token FROM account, zk_fences'), '7|1000', 'with its fences');

# If the ensemble is younger than the stored token, the hint says how to go on.
my $owner = $data->backend(dbname => 'restored', extra_params => [ '-U', 'owner' ]);
$result = $owner->run(q{SELECT zk_fence('account', 1)});
is($result->{errcode}, 'ZK001', 'a token of a younger ensemble is refused');
like($result->{err}, qr/HINT: .* delete the resource's row from table public\.zk_fences\./, 'and the hint says what to do');
is($owner->errcode(q{DELETE FROM public.zk_fences WHERE resource = 'account'}), '', 'which the owner may');
is($owner->errcode(q{SELECT zk_fence('account', 1)}), '', 'and then it works');
$owner->quit;

done_testing();
