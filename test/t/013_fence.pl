
# The zombie: a holder that sleeps past the end of its session, and goes on with its work
# after another one has had the lock and has committed.  The data is on a third server that
# knows nothing of the locks.

use strict;
use warnings;

use Test::More;

use PostgreSQL::Test::Utils;

use ZklockNode;
use ZooKeeper;

my $zk = ZooKeeper->new;
my %settings = ('zklock.session_timeout' => '4s');
my $node_a = ZklockNode->started('a', $zk, %settings);
my $node_b = ZklockNode->started('b', $zk, %settings);
my $data = ZklockNode->started('data', $zk, %settings, init => [ allows_streaming => 1 ]);
my ($a1, $b1) = map { $_->backend } $node_a, $node_b;
my ($of_a, $of_b) = map { $data->backend } 1, 2;
$data->safe_psql('postgres', 'CREATE TABLE account (balance int); INSERT INTO account VALUES (0)');

sub fenced
{
	my ($token, $amount) = @_;
	return "BEGIN; SELECT zk_fence('account', $token); UPDATE account SET balance = balance + $amount";
}
sub balance { return $data->safe_psql('postgres', 'SELECT balance FROM account'); }

# The whole of server a sleeps, its worker too, with a transaction on the other server begun.
my $old = $a1->query(q{SELECT zk_lock_acquire('/account')}) && $a1->query(q{SELECT zk_lock_token('/account')});
$of_a->query('BEGIN');
kill 'STOP', $node_a->worker_pid;
is($b1->query(q{SELECT zk_lock_acquire('/account', '1min')}), 't', 'the session ends, and the next one has the lock');
my $new = $b1->query(q{SELECT zk_lock_token('/account')});
cmp_ok($new, '>', $old, 'with a greater token');
$of_b->query(fenced($new, 100));
$of_b->query('COMMIT');
kill 'CONT', $node_a->worker_pid;

my $result = $of_a->run("SELECT zk_fence('account', $old)");
is($result->{errcode}, 'ZK001', 'the zombie is refused');
like($result->{err}, qr/token $old is too old for resource "account"/, 'and told why');
$of_a->query('ROLLBACK');
is(balance(), 100, 'nothing of it is there');

# It has written, and sleeps before its commit: the next one waits until that is decided.
$b1->query(q{SELECT zk_lock_release('/account')});
$a1->run(q{SELECT zk_lock_release('/account')});
$node_a->wait_until_connected;
$old = $a1->query(q{SELECT zk_lock_acquire('/account')}) && $a1->query(q{SELECT zk_lock_token('/account')});
$of_a->query(fenced($old, 1));
kill 'STOP', $node_a->worker_pid;
is($b1->query(q{SELECT zk_lock_acquire('/account', '1min')}), 't', 'the next one has the lock again');
$new = $b1->query(q{SELECT zk_lock_token('/account')});
$of_b->send("SELECT zk_fence('account', $new)");
$data->wait_until('SELECT count(*) = 1 FROM pg_locks WHERE NOT granted AND pid = ' . $of_b->pid);
ok(!$of_b->is_done, 'but may not write yet');
$of_a->query('COMMIT');
is($of_b->result->{errcode}, '', 'until what the old one wrote is of the past');
is(balance(), 101, 'and can be seen');
kill 'CONT', $node_a->worker_pid;

# Without the fence there would be nothing to stop it: that is what it is for.
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

# The owner of a database dumps and restores it without being a superuser, who only has to
# create the extension.
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

# Where the ensemble is a younger one, the hint says how to go on.
my $owner = $data->backend(dbname => 'restored', extra_params => [ '-U', 'owner' ]);
$result = $owner->run(q{SELECT zk_fence('account', 1)});
is($result->{errcode}, 'ZK001', 'a token of a younger ensemble is refused');
like($result->{err}, qr/HINT: .* delete the resource's row from table public\.zk_fences\./, 'and the hint says what to do');
is($owner->errcode(q{DELETE FROM public.zk_fences WHERE resource = 'account'}), '', 'which the owner may');
is($owner->errcode(q{SELECT zk_fence('account', 1)}), '', 'and then it works');
$owner->quit;

done_testing();
