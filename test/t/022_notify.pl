
# A transaction that notifies has written, also if that is all that it does: it gets a
# transaction ID for that only after the commit guard was asked.

use strict;
use warnings;

use Test::More;

use ZklockNode;
use ZooKeeper;

my $zk = ZooKeeper->new;
my $node = ZklockNode->started('a', $zk, 'zklock.session_timeout' => '30s', 'zklock.on_lost' => 'notice');
$node->safe_psql('postgres', q{
	CREATE TABLE t (v text);
	CREATE FUNCTION tells() RETURNS void LANGUAGE plpgsql AS $$ BEGIN NOTIFY news, 'function'; END $$;
	CREATE FUNCTION on_statement() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_notify('news', 'trigger'); RETURN NULL; END $$;
	CREATE TRIGGER on_statement AFTER DELETE ON t FOR EACH STATEMENT EXECUTE FUNCTION on_statement(); });

my $listener = $node->backend;
$listener->query('LISTEN news');
sub news { return join ' ', $listener->run('SELECT')->{out} =~ /notification "news" with payload "(\w+)"/g; }

my $backend = $node->backend;
$backend->query(q{SELECT zk_lock_acquire('/session')});
$backend->query(q{NOTIFY news, 'held'});
is(news(), 'held', 'with the lock it notifies');

$zk->delete('/zklock/session/' . $zk->children('/zklock/session')->[0]);
$node->wait_until(q{SELECT bool_or(claim = 'lost') FROM zk_locks});

my @tells = (
	q{NOTIFY news, 'lost'},
	q{SELECT pg_notify('news', 'lost')},
	q{SELECT tells()},
	q{DO $$ BEGIN PERFORM tells(); END $$},
	q{DELETE FROM t},
	q{BEGIN; SELECT 1; SELECT pg_notify('news', 'lost'); SELECT 1; COMMIT},
	q{BEGIN; SAVEPOINT s; SELECT tells(); RELEASE s; COMMIT},
	q{LISTEN other});
my @reads = (
	q{SELECT 1},
	q{BEGIN; SAVEPOINT s; SELECT tells(); ROLLBACK TO s; COMMIT},
	q{BEGIN; SELECT tells(); ROLLBACK; SELECT 1});
foreach my $statement (@tells)
{
	my $result = $backend->run($statement);
	is($result->{errcode}, 'ZK001', "$statement: refused");
	unlike($result->{err}, qr/PREPARE/, "$statement: of nothing else is spoken");
	is(news(), '', "$statement: nothing was told");
}
is($backend->query('SELECT count(*) FROM pg_listening_channels()'), '0', 'nor does it listen');
foreach my $statement (@reads)
{
	my $result = $backend->run($statement);
	is($result->{errcode}, '', "$statement: only reads");
	like($result->{err}, qr/WARNING:  ZK001: lock "\/session" was lost/, "$statement: it is told");
	is(news(), '', "$statement: nothing was told");
}

# Released while it is lost, it counts for the transaction all the same.
$backend->query(q{BEGIN; SELECT tells(); SELECT zk_lock_release('/session')});
is($backend->errcode('COMMIT'), 'ZK001', 'released while it is lost: refused');
is(news(), '', 'released while it is lost: nothing was told');
$backend->query(q{SELECT tells()});
is(news(), 'function', 'released: it notifies');

# What DISCARD ALL drops, and that it ends listening, needed no lock.
$listener->query(q{CREATE TEMP TABLE gone (v text)});
$listener->query(q{SELECT zk_lock_acquire('/discard')});
$zk->delete('/zklock/discard/' . $zk->children('/zklock/discard')->[0]);
$node->wait_until(q{SELECT bool_or(claim = 'lost') FROM zk_locks WHERE path = '/discard'});
my $result = $listener->run('DISCARD ALL');
is($result->{errcode}, '', 'DISCARD ALL: not refused');
like($result->{err}, qr/WARNING:  ZK001: lock "\/discard" was lost/, 'DISCARD ALL: it is told');
is($listener->run('SELECT count(*) FROM pg_listening_channels()')->{out}, '0', 'DISCARD ALL: it has ended listening');
$listener->query('LISTEN news');

# In doubt nothing is told either, and reading passes.
$backend->query(q{SELECT zk_lock_acquire('/doubt')});
$zk->pause(1);
$node->wait_until('SELECT NOT safe FROM zk_status');
is($backend->errcode($_), 'ZK001', "in doubt, $_: refused") foreach @tells;
is($backend->run($_)->{err}, '', "in doubt, $_: passes") foreach @reads;
$zk->resume(1);
$node->wait_until_connected;
is(news(), '', 'in doubt: nothing was told');
is($backend->errcode($tells[0]), '', 'back: it notifies');
is(news(), 'lost', 'back: it has');

done_testing();
