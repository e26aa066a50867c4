
# A transaction that notifies counts as one that writes, even if it does nothing else: it gets a
# transaction ID for that only after the commit guard was asked.  The same holds for a transaction
# that ends a prepared transaction, although that has a transaction ID of its own.

use strict;
use warnings;

use ZklockTest;

my $zk = ZooKeeper->new;
my $node = ZklockNode->started('a', $zk, 'zklock.session_timeout' => '30s', 'zklock.on_lost' => 'notice',
	'max_prepared_transactions' => 2, 'synchronous_standby_names' => 'nobody', 'synchronous_commit' => 'local',
	init => [ allows_streaming => 1 ]);
$node->safe_psql('postgres', q{
	CREATE TABLE t (v text);
	CREATE FUNCTION tells() RETURNS void LANGUAGE plpgsql AS $$ BEGIN NOTIFY news, 'function'; END $$;
	CREATE FUNCTION on_statement() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_notify('news', 'trigger'); RETURN NULL; END $$;
	CREATE TRIGGER on_statement AFTER DELETE ON t FOR EACH STATEMENT EXECUTE FUNCTION on_statement(); });

my $listener = $node->backend;
$listener->query('LISTEN news');
sub news { return join ' ', $listener->run('SELECT')->{out} =~ /notification "news" with payload "(\w+)"/g; }

my $backend = $node->backend;
$backend->query(acquire('/session'));
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
	unlike($result->{err}, qr/PREPARE/, "$statement: nothing else is mentioned");
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

# The prepared transaction ends before the transaction of COMMIT PREPARED does.
$node->safe_psql('postgres', qq{BEGIN; INSERT INTO t VALUES ('$_'); PREPARE TRANSACTION '$_'}) foreach 'one', 'other';
foreach my $statement (q{COMMIT PREPARED 'one'}, q{ROLLBACK PREPARED 'other'})
{
	is($backend->errcode($statement), 'ZK001', "$statement: refused");
}
is($backend->query(q{SELECT string_agg(gid, ' ' ORDER BY gid) FROM pg_prepared_xacts}), 'one other', 'both are still prepared');
like($backend->run(q{COMMIT PREPARED 'none'})->{err}, qr/ERROR:  ZK001: lock "\/session" was lost/, 'one that is not there: the same');

# Released while it is lost, it counts for the transaction all the same.
$backend->query(q{BEGIN; SELECT tells(); SELECT zk_lock_release('/session')});
is($backend->errcode('COMMIT'), 'ZK001', 'released while it is lost: refused');
is(news(), '', 'released while it is lost: nothing was told');
$backend->query(q{SELECT tells()});
is(news(), 'function', 'released: it notifies');
is($backend->query(acquire('/session')), 't', 'acquired again');
is($backend->errcode($_), '', "with the lock: $_") foreach q{COMMIT PREPARED 'one'}, q{ROLLBACK PREPARED 'other'};
is($backend->query(q{SELECT string_agg(v, ' ') FROM t}), 'one', 'with the lock: they have ended so');
$backend->query(release('/session'));

# Commits that notify follow one another.  This one waits for a standby, so the others wait for it,
# and lose their locks meanwhile.
my $slow = $node->backend;
$slow->query('SET synchronous_commit = on');
$slow->send(q{BEGIN; INSERT INTO t VALUES ('slow'); NOTIFY news, 'slow'; COMMIT});
$node->wait_until('SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = \'SyncRep\'');
$backend->query(q{BEGIN; SELECT zk_xact_lock_acquire('/listens')});
$backend->query(q{LISTEN other; UNLISTEN other});
is($backend->errcode('COMMIT'), '', 'one that only listens does not wait');
my %late = (q{NOTIFY news, 'late'} => $node->backend, q{LISTEN other; SELECT pg_notify('news', 'late')} => $node->backend);
foreach my $statement (sort keys %late)
{
	my $late = $late{$statement};
	my $path = '/late' . $late->pid;
	$late->query("BEGIN; SELECT zk_xact_lock_acquire('$path')");
	$late->query($statement);
	$late->send('COMMIT');
	$node->wait_until("SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'object' AND NOT granted AND pid = " . $late->pid);
	$zk->delete("/zklock$path/" . $zk->children("/zklock$path")->[0]);
	$node->wait_until("SELECT bool_or(claim = 'lost') FROM zk_locks WHERE path = '$path'");
}
$node->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $slow->pid . ')');
$slow->result;
is($late{$_}->result->{errcode}, 'ZK001', "$_: lost while it waited for another that notifies: refused") foreach sort keys %late;
is(news(), 'slow', 'nothing else was told');
$_->quit foreach $slow, values %late;

# DISCARD ALL needed no lock for what it drops, nor to end listening.
$listener->query(q{CREATE TEMP TABLE gone (v text)});
$listener->query(acquire('/discard'));
$zk->delete('/zklock/discard/' . $zk->children('/zklock/discard')->[0]);
$node->wait_until(q{SELECT bool_or(claim = 'lost') FROM zk_locks WHERE path = '/discard'});
my $result = $listener->run('DISCARD ALL');
is($result->{errcode}, '', 'DISCARD ALL: not refused');
like($result->{err}, qr/WARNING:  ZK001: lock "\/discard" was lost/, 'DISCARD ALL: it is told');
is($listener->run('SELECT count(*) FROM pg_listening_channels()')->{out}, '0', 'DISCARD ALL: it has ended listening');
$listener->query('LISTEN news');

# In doubt, no transaction notifies either, and reading passes.
$backend->query(acquire('/doubt'));
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
