
# The commit guard and the end of a backend, at moments at which a backend has to wait
# where it seldom does: for a partition of the lock table, and for a catalog.  And what becomes
# of a commit that is held up behind the guard.  Needs servers with fault points (make FAULTS=1).

use strict;
use warnings;

use Time::HiRes qw(time);

use ZklockTest;

my $zk = ZooKeeper->new;
my $node_a = ZklockNode->started('a', $zk, 'zklock.session_timeout' => '6s', 'zklock.linger' => 0,
	'max_prepared_transactions' => 1);
my $node_b = ZklockNode->started('b', $zk, 'zklock.session_timeout' => '20s');
my ($holder, $stopper, $watcher) = map { $node_a->backend } 1 .. 3;
my ($judge, $stopper_b) = map { $node_b->backend } 1 .. 2;
$watcher->query('CREATE TABLE work (v text)');

# A backend stands still while it has the partition of this path; returns its process.
sub stand_still
{
	my ($node, $backend, $path) = @_;
	$node->arm('hold-begun');
	$backend->send("SELECT zk_lock_acquire('$path')");
	return $node->at_point('hold-begun');
}

# --- the guard waits for a partition until the session has expired ---

# (A path of the same partition; the worker is held up there, too.)
my ($path, $other) = ZklockNode::paths_in(5, 2);
$holder->query('BEGIN');
is($holder->query("SELECT zk_xact_lock_acquire('$path')"), 't', 'late guard: held');
$holder->query(q{INSERT INTO work VALUES ('late')});
my $process = stand_still($node_a, $stopper, $other);
$holder->send('COMMIT');
is($judge->query("SELECT zk_lock_acquire('$path', '1min')"), 't', 'late guard: another server has the lock');
ok(!$holder->is_done, 'late guard: the guard still waits');
kill 'CONT', $process;
is($holder->result->{errcode}, 'ZK001', 'late guard: no commit');
$stopper->result;
$node_a->wait_until_connected;
$stopper->query('SELECT zk_lock_release_all()');
$node_a->set('zklock.session_timeout', '30s');		# no other part waits for an expiry
$node_a->expire_session($zk, by_hand => 1);
is($judge->query("SELECT zk_lock_release('$path')"), 't', 'late guard: the other one had it all the time');
is($watcher->query(q{SELECT count(*) FROM work WHERE v = 'late'}), '0', 'late guard: nothing was written');

# --- it waits between two claims until the first one has ended ---

# (The session lives on.  The guard looks at claims in the order of the backend's hash table,
# which is that of the partitions; so some of these claims come before the one that it waits
# for, and some behind.  The worker stands still before it counts the losses, so only the
# guard's clock tells of them.)
$node_b->safe_psql('postgres', 'CREATE TABLE work (v text)');
my ($stop, @stuck) = ZklockNode::paths_in(9, 9);
my @ending = (ZklockNode::paths_in(3, 4), ZklockNode::paths_in(15, 4));
my @holders = map { $node_b->backend } @stuck;
my $worker = $node_b->worker_pid;
foreach my $i (0 .. $#holders)
{
	$holders[$i]->query('BEGIN');
	$holders[$i]->query("SELECT zk_xact_lock_acquire('$stuck[$i]')");
	$holders[$i]->query("SELECT zk_xact_lock_acquire('$ending[$i]', NULL, '5 s')");
	$holders[$i]->query("INSERT INTO work VALUES ('between')");
}
my $granted = time;
$process = stand_still($node_b, $stopper_b, $stop);
$node_b->arm('timer-fired');
$_->send('COMMIT') foreach @holders;
$zk->wait_until(sub { time > $granted + 5 }, 'the lease times to be over');
kill 'CONT', $process;
is_deeply([ map { $_->result->{errcode} } @holders ], [ ('ZK002') x @holders ],
	'between claims: no commit whose lease time was over');
ZklockNode::wait_until_still($worker);
kill 'CONT', $worker;
is($node_b->safe_psql('postgres', 'SELECT count(*) FROM work'), '0', 'between claims: nothing was written');
$stopper_b->result;
$_->quit foreach @holders, $stopper_b;

# --- the guard looks again only if a claim of its own transaction was lost ---

sub lose
{
	my ($node, $path) = @_;
	$zk->delete("/zklock$path/" . $zk->children("/zklock$path")->[0]);
	return $node->wait_until("SELECT bool_or(claim = 'lost') FROM zk_locks WHERE path = '$path'");
}

# The guard looks at a claim with a hold limit each time.
my ($bystander, $looks) = map { $node_b->backend } 1 .. 2;
$_->query(q{SET zklock.on_lost = 'notice'}) foreach $bystander, $looks;
$bystander->query(q{SELECT zk_lock_acquire('/looks/bystander')});
foreach my $lost ('bystander', 'own')
{
	$looks->query('BEGIN');
	$looks->query("SELECT zk_xact_lock_acquire('/looks/own', NULL, '1 h')");
	$looks->query(q{INSERT INTO work VALUES ('looks')});
	$node_b->arm('guard-looked');
	$looks->send('COMMIT');
	$process = $node_b->at_point('guard-looked');
	lose($node_b, "/looks/$lost");
	$node_b->arm('guard-looked') if $lost eq 'bystander';
	kill 'CONT', $process;
	is($looks->result->{errcode}, $lost eq 'own' ? 'ZK001' : '', "lost while the guard looks: $lost");
	ok(unlink($node_b->data_dir . '/zklock.fault.guard-looked'), 'it has not looked again') if $lost eq 'bystander';
}
is($node_b->safe_psql('postgres', q{SELECT count(*) FROM work WHERE v = 'looks'}), '1', 'and one has committed');
$_->quit foreach $bystander, $looks;

# --- a cancel that is still to come does not explain an error with its SQLSTATE ---

my $pending = $node_b->backend;
$pending->query(q{SELECT zk_lock_acquire('/pending')});
$node_b->arm('acquired');
$pending->send(q{DO $$ BEGIN RAISE query_canceled USING MESSAGE = 'mine: ' || zk_lock_acquire('/pending/other'); END $$});
$process = $node_b->at_point('acquired');
lose($node_b, '/pending');
kill 'CONT', $process;
like($pending->result->{err}, qr/ERROR:  57014: mine: true/, 'an error with the SQLSTATE of a cancel, while the cancel is pending');
$pending->quit;

# --- a second loss comes before the error of the first one has its reason ---

my $twice = $node_b->backend;
$twice->query('BEGIN');
$twice->query("SELECT zk_xact_lock_acquire('/twice/$_')") foreach 1, 2;
$node_b->arm('cancel-raised');
$twice->send('SELECT pg_sleep(600)');
$node_b->wait_until(q{SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE pid = } . $twice->pid);
lose($node_b, '/twice/1');
$process = $node_b->at_point('cancel-raised');
lose($node_b, '/twice/2');
kill 'CONT', $process;
like($twice->result->{err}, qr{ERROR:  ZK001: lock "/twice/\d" was lost}, 'two losses at once');
is($twice->errcode('SELECT 1'), '25P02', '... and the session goes on');
$twice->query('ROLLBACK');

# --- a loss comes while its transaction or savepoint is being rolled back ---

# What goes on without the lock is not disturbed.  Where an outer lock was lost, the statement fails that goes on,
# even if it runs no other one, or the next one that can be cancelled.
$twice->query(q{CREATE PROCEDURE roll_back() LANGUAGE plpgsql AS $$ BEGIN
	PERFORM zk_xact_lock_acquire('/rolled_back'); ROLLBACK; PERFORM pg_sleep(0.3); END $$});
my $block = q{BEGIN PERFORM %s; PERFORM 1/0; EXCEPTION WHEN division_by_zero THEN PERFORM pg_sleep(0.3); END};
foreach my $case (
	[ 'xact-ended', 'CALL roll_back()', '' ],
	[ 'xact-ended', q{BEGIN\; SELECT zk_xact_lock_acquire('/rolled_back')\; ROLLBACK\; SELECT pg_sleep(0.3)}, '' ],
	[ 'savepoint-aborted', 'DO $$ BEGIN ' . sprintf($block, q{zk_xact_lock_acquire('/rolled_back')}) . q{; END $$}, '' ],
	[ 'savepoint-aborted', q{DO $$ BEGIN PERFORM zk_xact_lock_acquire('/rolled_back'); } . sprintf($block, '1') . q{; END $$}, 'ZK001' ],
	[ 'savepoint-aborted', 'ROLLBACK TO s', '', 'in a block' ],
	[ 'savepoint-committed', 'RELEASE s', '', 'in a block' ],
	map { [ $_, qq{DO \$\$ DECLARE n int := 0; BEGIN
		BEGIN n := 1 / ('$_' <> 'savepoint-aborted')::int; EXCEPTION WHEN division_by_zero THEN END;
		WHILE n < 5000000 LOOP n := n + 1; END LOOP; END \$\$}, 'ZK001', 'in a block' ] }
	'savepoint-aborted', 'savepoint-committed', 'savepoint-settled')
{
	my ($point, $sql, $code, $in_block) = @$case;
	$twice->query($_) foreach $in_block ? ('BEGIN', q{SELECT zk_xact_lock_acquire('/rolled_back')}, 'SAVEPOINT s') : ();
	$twice->query(q{SELECT zk_lock_acquire('/rolled_back/other')});
	$node_b->arm($point);
	$twice->send($sql);
	$process = $node_b->at_point($point);
	$zk->delete('/zklock/rolled_back/' . (grep { !/other/ } @{ $zk->children('/zklock/rolled_back') })[0]);
	$node_b->wait_until(q{SELECT count(*) = 0 FROM zk_locks WHERE path = '/rolled_back' AND claim = 'held'});
	kill 'CONT', $process;
	is($twice->result->{errcode}, $code, "lost during the rollback: $sql");
	is(join(' ', map { $twice->errcode($_) } 'SAVEPOINT t', 'SELECT pg_sleep(20)'), ' ZK001', '... the next statement is cancelled')
		if $in_block && !$code;
	$twice->run($_) foreach 'ROLLBACK', 'SELECT zk_lock_release_all()';
}

# Or while the transaction is idle and can still go on from a savepoint.
$twice->run($_) foreach 'BEGIN', q{SELECT zk_xact_lock_acquire('/rolled_back')}, 'SAVEPOINT s', 'SELECT 1/0';
lose($node_b, '/rolled_back');
is(join(' ', map { $twice->errcode($_) } 'ROLLBACK TO s', 'SELECT pg_sleep(20)'), ' ZK001', 'lost in a failed savepoint');
$twice->quit;

# --- a late commit is reported, and only that ---

sub late_commits { my ($node) = @_; return $node->safe_psql('postgres', 'SELECT late_commits FROM zk_stat'); }

# Let the backend commit, and stand still behind the guard.
sub pass_guard
{
	my ($node, $backend) = @_;
	$node->arm('guard-passed');
	$backend->send('COMMIT');
	return $node->at_point('guard-passed');
}

# Temporary tables are emptied and dropped before the guard, which may take long.
my $temporary = $node_a->backend;
$node_a->wait_until_connected;
$temporary->query('CREATE TEMPORARY TABLE emptied (v text) ON COMMIT DELETE ROWS');
my $file = $node_a->data_dir . '/' . $temporary->query(q{SELECT pg_relation_filepath('emptied')});
$temporary->query('BEGIN');
$temporary->query(q{SELECT zk_xact_lock_acquire('/late/temporary')});
$temporary->query(q{INSERT INTO emptied SELECT repeat('x', 1000) FROM generate_series(1, 2000)});
$temporary->query('CREATE TEMPORARY TABLE dropped ON COMMIT DROP AS SELECT 1');
cmp_ok(-s $file, '>', 0, 'temporary tables: there are rows');
$process = pass_guard($node_a, $temporary);
is(-s $file, 0, 'temporary tables: none when the guard has been passed');
kill 'CONT', $process;
is($temporary->result->{errcode}, '', 'temporary tables: commit');
is($temporary->query(q{SELECT count(*) || ' ' || (to_regclass('dropped') IS NULL) FROM emptied}), '0 true', 'temporary tables: empty and gone');
$temporary->query('BEGIN');
$temporary->query(q{SELECT zk_xact_lock_acquire('/late/temporary')});
$temporary->query('INSERT INTO emptied VALUES (1)');
is($temporary->errcode('COMMIT') . $temporary->query('SELECT count(*) FROM emptied'), '0', 'temporary tables: the next time, too');

# A session-level lock is lost behind the guard of a commit that then fails.  The client hears of the failure, and
# the session goes on, as it does after any other failed transaction.
my ($fails, $rival) = map { $node_a->backend } 1, 2;
$fails->query(q{SELECT zk_lock_acquire('/late/fails')});
foreach ($fails, $rival)
{
	$_->query('BEGIN ISOLATION LEVEL SERIALIZABLE');
	$_->query('SELECT count(*) FROM work');
	$_->query(q{INSERT INTO work VALUES ('skew')});
}
$process = pass_guard($node_a, $fails);
is($rival->errcode('COMMIT'), '', 'a commit that fails behind the guard: its rival commits');
$zk->delete('/zklock/late/fails/' . $zk->children('/zklock/late/fails')->[0]);
$node_a->wait_until(q{SELECT count(*) = 0 FROM zk_locks WHERE path = '/late/fails' AND claim = 'held'});
kill 'CONT', $process;
is($fails->result->{errcode}, '40001', 'a commit that fails behind the guard: says why');
is($watcher->query('SELECT count(*) FROM pg_stat_activity WHERE pid = ' . $fails->pid), '1', '... and the session goes on');
is($fails->run(held('/late/fails'))->{out}, 'f', '... without the lock');
$_->quit foreach $fails, $rival;

# The commit takes longer than the guard could know.  But the session lives on, and the lock with
# it.
$temporary->query('BEGIN');
$temporary->query(q{SELECT zk_xact_lock_acquire('/late/slow')});
$temporary->query(q{INSERT INTO work VALUES ('slow')});
$process = pass_guard($node_a, $temporary);
my $certain = $node_a->status('safe_until');
$node_a->wait_until("SELECT clock_timestamp() > '$certain'");
$node_a->wait_until('SELECT safe FROM zk_status');
kill 'CONT', $process;
is($temporary->result->{err}, '', 'a slow commit under a lock that is still good: no message');
is(late_commits($node_a), '0', '... and it does not count');

# Both commits are held up until the session has expired.  The first one's client cannot be told the
# name of the lock, which is no reason to fail.
my ($writer, $reader) = map { $node_a->backend } 1 .. 2;
foreach my $backend ($temporary, $writer, $reader)
{
	$backend->query('BEGIN');
	$backend->query('SELECT zk_xact_lock_acquire(' . ($backend == $temporary ? q{U&'/late/\4e00'} : q{'/late/} . $backend->pid . q{'}) . ')');
	$backend->query(q{INSERT INTO work VALUES ('too late')}) if $backend != $reader;
}
$temporary->query('SET client_encoding = latin1');
my $at = -s $node_a->logfile;
my @processes = map { pass_guard($node_a, $_) } $temporary, $writer, $reader;
$worker = $node_a->worker_pid;
kill 'STOP', $worker;
is($judge->query(q{SELECT zk_lock_acquire('/late/} . $writer->pid . q{', '1min')}), 't', 'late: another server has the lock');
kill 'CONT', @processes;
my @results = map { $_->result } $temporary, $writer, $reader;
kill 'CONT', $worker;
is(join(' ', map { $_->{errcode} } @results), '  ', 'late: the commits stand');
is($results[0]{err}, '', 'late: what its client cannot read is not sent');
like($results[1]{err}, qr/WARNING:  01ZK1: transaction committed \d+\.\d+ ms after lock "\/late\/${\ $writer->pid}" was last certain\n/m, 'late: a WARNING');
is($results[2]{err}, '', 'late: no message to a transaction that only reads');
like(slurp_file($node_a->logfile, $at), qr/LOG:  transaction committed [\d.]+ ms after lock "$_" was last certain/, "late: the log names $_")
	foreach '/late/\S{3}', '/late/' . $writer->pid;
is(late_commits($node_a), '2', 'late: two were late');
is($temporary->query(q{SELECT count(*) FROM work WHERE v = 'too late'}), '2', 'late: the backends go on');
$temporary->send('SELECT pg_sleep(600)');
$node_a->wait_until(q{SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE pid = } . $temporary->pid);
$node_a->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $temporary->pid . ')');
is($temporary->result->{errcode}, '57014', 'late: and can be cancelled');

# Another client deletes the znode, long before the moment up to which the guard counted on the lock.
$node_a->wait_until_connected;
$writer->query('BEGIN');
$writer->query(q{SELECT zk_xact_lock_acquire('/late/deleted')});
$writer->query(q{INSERT INTO work VALUES ('deleted')});
$process = pass_guard($node_a, $writer);
lose($node_a, '/late/deleted');
is($judge->query(q{SELECT zk_lock_acquire('/late/deleted', '1min')}), 't', 'late, deleted: another server has the lock');
kill 'CONT', $process;
my $deleted = $writer->result;
is($deleted->{errcode}, '', 'late, deleted: the commit stands');
like($deleted->{err}, qr/WARNING:  01ZK1: transaction committed \d+\.\d+ ms after lock "\/late\/deleted" was last certain\n/, 'late, deleted: a WARNING');
is(late_commits($node_a), '3', 'late, deleted: it counts');

# COMMIT PREPARED writes its record before its own transaction ends.
$node_a->wait_until_connected;
$writer->query('BEGIN');
$writer->query(q{INSERT INTO work VALUES ('prepared')});
$writer->query(q{PREPARE TRANSACTION 'late'});
$writer->query(q{SELECT zk_lock_acquire('/late/prepared')});
$node_a->arm('prepared-guarded');
$writer->send(q{COMMIT PREPARED 'late'});
$process = $node_a->at_point('prepared-guarded');
$worker = $node_a->worker_pid;
kill 'STOP', $worker;
is($judge->query(q{SELECT zk_lock_acquire('/late/prepared', '1min')}), 't', 'late COMMIT PREPARED: another server has the lock');
kill 'CONT', $process;
my $result = $writer->result;
kill 'CONT', $worker;
is($result->{errcode}, '', 'late COMMIT PREPARED: it stands');
like($result->{err}, qr/WARNING:  01ZK1: /, 'late COMMIT PREPARED: a WARNING');
is(late_commits($node_a), '4', 'late COMMIT PREPARED: it counts');
$_->quit foreach $temporary, $writer, $reader;
$judge->query('SELECT zk_lock_release_all()');

# --- a backend is terminated while it reads the catalogs for its claim ---

# An entry that this backend's memory still names has another backend's claim by now; a
# fresh backend has nothing there at all.
$node_a->wait_until_connected;
foreach my $fresh (0, 1)
{
	my $label = $fresh ? 'fresh backend' : 'terminated backend';
	my $victim = $node_a->backend;
	if (!$fresh)
	{
		$victim->query(q{SELECT zk_lock_acquire('/first')});
		$victim->query(q{SELECT zk_lock_release('/first')});
	}
	$holder->query('BEGIN');
	is($holder->query(q{SELECT zk_xact_lock_acquire('/held')}), 't', "$label: another one holds a lock");
	$victim->query(q{SET application_name = 'other'});
	my $pid = $victim->pid;
	$watcher->query('ALTER DATABASE postgres CONNECTION LIMIT ' . (90 + $fresh));
	$watcher->query('BEGIN');
	$watcher->query('LOCK TABLE pg_database IN ACCESS EXCLUSIVE MODE');
	$victim->send(q{SELECT zk_lock_acquire('/second')});
	$watcher->wait_until("SELECT count(*) = 1 FROM pg_locks WHERE NOT granted AND pid = $pid");
	$watcher->query("SELECT pg_terminate_backend($pid)");
	$victim->result;
	$watcher->query('ROLLBACK');
	$watcher->wait_until("SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid");
	is($holder->query(q{SELECT zk_lock_is_held('/held')}), 't', "$label: the other one still holds it");
	is($judge->query(q{SELECT zk_lock_acquire('/held', '0')}), 'f', "$label: so no other server gets it");
	is($watcher->query(q{SELECT count(*) FROM zk_locks WHERE path = '/held' AND claim = 'held'}), '1', "$label: and it is shown");
	is($holder->errcode('COMMIT'), '', "$label: commit");
}

# --- safe until moves back after the guard has counted on it ---

# (ZooKeeper comes back with a shorter session timeout, and the worker stands still before its first
# proof over the new connection.  So the lock is in doubt long before the moment on which the guard
# counted.)
$node_a->set('zklock.session_timeout', '50s');
$node_a->expire_session($zk, by_hand => 1);
$watcher->query('BEGIN');
is($watcher->query(q{SELECT zk_xact_lock_acquire('/late/shorter')}), 't', 'a shorter timeout: held');
$watcher->query(q{INSERT INTO work VALUES ('shorter')});
$process = pass_guard($node_a, $watcher);
my $counted = $node_a->status('safe_until');
$zk->stop;
$node_a->arm('proof-noted');
$zk->set_setting(1, 'maxSessionTimeout', 6000);
$zk->start;
$worker = $node_a->at_point('proof-noted');
$node_a->wait_until('SELECT safe_until < clock_timestamp() FROM zk_status');
is($node_a->safe_psql('postgres', "SELECT clock_timestamp() < '$counted'"), 't', 'a shorter timeout: safe until was moved back');
kill 'CONT', $process;
$result = $watcher->result;
kill 'CONT', $worker;
is($result->{errcode}, '', 'a shorter timeout: the commit stands');
like($result->{err}, qr/WARNING:  01ZK1: transaction committed \d+\.\d+ ms after lock "\/late\/shorter" was last certain\n/,
	'a shorter timeout: a WARNING');
is(late_commits($node_a), '5', 'a shorter timeout: it counts');

$_->quit foreach $holder, $stopper, $watcher, $judge;
$_->stop foreach $node_a, $node_b;
done_testing();
