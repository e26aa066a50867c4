
# zklock.commit_under: a transaction that has written commits only while a session of its server holds the lock, with its
# token; and the ticket stays until that commit is done, whatever becomes of the holder meanwhile.  Needs servers
# with fault points (make FAULTS=1).

use strict;
use warnings;

use ZklockTest;

my $zk = ZooKeeper->new;
my %settings = ('zklock.linger' => 0, 'restart_after_crash' => 'on', 'max_prepared_transactions' => 5);
my $north = ZklockNode->started('north', $zk, %settings);
my $south = ZklockNode->started('south', $zk, %settings, 'wal_level' => 'logical', init => [ allows_streaming => 'logical' ]);
my ($n, $s) = ($north->backend, $south->backend);
$n->query('CREATE TABLE t (v text); CREATE SEQUENCE ran; GRANT ALL ON t TO public; CREATE ROLE deploy LOGIN; CREATE ROLE other LOGIN; CREATE ROLE boss LOGIN SUPERUSER');
my $all = $north->backend;

sub quit { eval { $_->quit } foreach @_; return; }
sub under { my ($value, %params) = @_; my $backend = $north->backend(%params); $backend->query("SET zklock.commit_under = '$value'"); return $backend; }
sub as { my ($role) = @_; return (extra_params => [ '-U', $role ]); }
sub written { my ($v) = @_; return $all->query("SELECT count(*) FROM t WHERE v = '$v'"); }

# A session of the north that holds the lock, and its token.
sub holder
{
	my ($path, $function, %params) = @_;
	my $holder = $north->backend(%params);
	$function //= 'zk_lock_acquire';
	is($holder->query(sprintf q{SELECT %s('%s', '1 min')}, $function, $path), 't', "$path: held") if $function !~ /\(/;
	$holder->query(sprintf $function, $path) if $function =~ /\(/;
	return ($holder, $holder->query(token($path)));
}

# --- the setting ---

my @malformed = ('m', ' /m', '1  /m', '0 /m', '-1 /m', '1/m', '99999999999999999999 /m', '5 m', '5', '/m/', '/.zklock/x');
is(join(' ', map { $n->errcode("SET zklock.commit_under = '$_'") } @malformed), join(' ', ('22023') x @malformed), 'malformed values are refused');
is($n->errcode("SET zklock.commit_under = '$_'"), '', "valid: '$_'") foreach '/m', '5 /m', '9223372036854775807 /m n', '';
$s->query(q{SELECT zk_semaphore_acquire('/few', 2)});
$n->query(q{SELECT zk_semaphore_acquire('/few', 2)});
my $g = under('/few');
is($g->errcode(q{INSERT INTO t VALUES ('few')}), '22023', 'a semaphore is refused where it is needed');
$n->query(q{SELECT zk_semaphore_release('/few')});
$s->query(q{SELECT zk_semaphore_release('/few')});
$g->quit;

# --- who commits ---

my ($holder, $token) = holder('/m');
$g = under("$token /m");
is($g->errcode(q{INSERT INTO t VALUES ('good')}), '', 'under the lock: commit');
is($holder->query(q{SELECT zk_lock_uses('/m')}), '2', 'and it is counted, as is the first transaction of the session, which sets it');
is($holder->errcode(q{INSERT INTO t VALUES ('holder')}), '', 'the holder itself is not concerned');
is($n->errcode(q{INSERT INTO t VALUES ('free')}), '', 'nor is a session without the setting');
is($g->errcode(q{SELECT count(*) FROM t}), '', 'to read needs no lock');
my $reader = under("$token /m");
$reader->query('SELECT 1') foreach 1, 2;
is($holder->query(q{SELECT zk_lock_uses('/m')}), '3', 'of a session that reads, only the first transaction');
$reader->query(q{SET zklock.commit_under = '/m'});
is($reader->errcode(q{INSERT INTO t VALUES ('any')}), '', 'a path alone means the present holder');
$reader->query(sprintf q{SET zklock.commit_under = '%s /m'}, $token - 1);
my $result = $reader->run(q{INSERT INTO t VALUES ('old')});
is($result->{errcode}, 'ZK001', 'another token: refused');
like($result->{err}, qr/lock "\/m" is not held\n.*DETAIL: .*with token ${\ ($token - 1)}\./s, 'which it says');

# The error comes before the statement runs; what writes without a statement fails at its commit.
$g->query('BEGIN');
$g->query('SELECT lo_create(0)');
$holder->query(release('/m'));
is($g->errcode('COMMIT'), 'ZK001', 'not held any more: no commit');
my @writes = (q{INSERT INTO t SELECT nextval('ran')}, 'CREATE TABLE no ()', 'TRUNCATE t', q{COPY t FROM PROGRAM 'echo x'}, 'SELECT * FROM t FOR UPDATE', 'CREATE DATABASE no',
	'DO $$ BEGIN DELETE FROM t; END $$', 'ANALYZE t', q{SELECT pg_notify('x', '')}, 'SELECT txid_current()', 'CREATE INDEX CONCURRENTLY no ON t (v)');
my $counted = q{SELECT errors FROM zk_stat_errors() WHERE sqlstate = 'ZK001'};
my $before = $n->query($counted);
is($g->errcode($_), 'ZK001', "not held any more: $_") foreach @writes;
is($n->query($counted) - $before, scalar @writes, 'each is counted');
is($n->query('SELECT is_called FROM ran'), 'f', 'a statement that would write does not even begin');
is($g->errcode('SELECT count(*) FROM t'), '', 'but may read');
is($g->errcode(q{PREPARE TRANSACTION 'x'}), '', 'without a transaction, nothing');
is($holder->query(acquire('/m', '1 min')), 't', 'held again, by another token');
is($g->errcode(q{INSERT INTO t VALUES ('next')}), 'ZK001', 'so this is not the lock under which it works');
$token = $holder->query(token('/m'));
$g->query("SET zklock.commit_under = '$token /m'");
is($g->errcode($_), '', "held: $_") foreach 'CREATE INDEX CONCURRENTLY yes ON t (v)', 'VACUUM t', 'CREATE DATABASE scratch', 'DROP DATABASE scratch', q{SELECT pg_notify('x', '')};
$g->query('BEGIN');
$g->query(q{INSERT INTO t VALUES ('prepared')});
is($g->errcode(q{PREPARE TRANSACTION 'x'}), '0A000', 'PREPARE is refused');
$n->query(q{BEGIN; INSERT INTO t VALUES ('prepared'); PREPARE TRANSACTION 'x'});
$n->query(q{BEGIN; INSERT INTO t VALUES ('prepared'); PREPARE TRANSACTION 'y'});
is($g->errcode(q{COMMIT PREPARED 'x'}), '', 'COMMIT PREPARED: held');

# Each commit of a procedure, and of CONCURRENTLY, is one.
$n->query(q{CREATE PROCEDURE twice() LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO t VALUES ('first'); COMMIT; PERFORM pg_advisory_lock(1), pg_advisory_unlock(1); INSERT INTO t VALUES ('second'); END $$});
$n->query('SELECT pg_advisory_lock(1)');
$g->send('CALL twice()');
$north->wait_until(q{SELECT wait_event = 'advisory' FROM pg_stat_activity WHERE pid = } . $g->pid);
$holder->query(release('/m'));
$n->query('SELECT pg_advisory_unlock(1)');
is($g->result->{errcode}, 'ZK001', 'a procedure: its second transaction fails');
is(written('first') . written('second'), '10', 'and the first one has committed');
is($g->errcode(q{COMMIT PREPARED 'y'}), 'ZK001', 'COMMIT PREPARED: not held');
$n->query(q{ROLLBACK PREPARED 'y'});

$holder->query(acquire('/m', '1 min'));
$token = $holder->query(token('/m'));
$g->query("SET zklock.commit_under = '$token /m'");
$n->query('BEGIN ISOLATION LEVEL REPEATABLE READ');
$n->query(q{INSERT INTO t VALUES ('old snapshot')});
$g->send('CREATE INDEX CONCURRENTLY slow ON t (v)');
$north->wait_until(q{SELECT count(*) = 1 FROM pg_locks WHERE NOT granted AND pid = } . $g->pid);
$holder->query(release('/m'));
$n->query('COMMIT');
is($g->result->{errcode}, 'ZK001', 'CONCURRENTLY: one of its transactions fails');
$n->query('DROP INDEX slow');

# A path alone: the token is that of the first statement that writes, whatever wrote it.
$g->query(q{SET zklock.commit_under = '/m'});
foreach my $how (q{INSERT INTO t VALUES ('two')}, 'SELECT lo_create(0)', q{SELECT pg_notify('x', '')}, 'SELECT count(*) FROM t')
{
	$holder->query(acquire('/m', '1 min'));
	$g->query('BEGIN');
	$g->query($how);
	$holder->query(release('/m'));
	$holder->query(acquire('/m', '1 min'));
	$g->query('SELECT 1');
	is($g->errcode('COMMIT'), $how =~ /count/ ? '' : 'ZK001', "two holders, one after the other: $how");
	$holder->query(release('/m'));
}
is($g->errcode(q{INSERT INTO t VALUES ('none')}), 'ZK001', 'a path alone, and no holder');
is($g->errcode('CREATE TEMPORARY TABLE mine ()'), 'ZK001', 'a temporary table is a write');
$holder->query(acquire('/m', '1 min'));
is($g->errcode('CREATE INDEX CONCURRENTLY one ON t (v)'), '', 'a path alone, and CONCURRENTLY');
$g->query('CREATE TEMPORARY TABLE mine ()');
$holder->query(release('/m'));
my $at = -s $north->logfile;
my $pid = $g->pid;
$g->quit;
$n->wait_until("SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid");
is($n->query(q{SELECT count(*) FROM pg_class WHERE relname = 'mine'}), '0', 'but its removal at the exit is none');
unlike(slurp_file($north->logfile, $at), qr/ERROR|FATAL/, 'and nothing is logged');
quit($reader);

# --- who may commit under which hold ---

# A path alone names the holder when the transaction begins to write, and that one is checked.
my ($own) = holder('/next', undef, as('deploy'));
my $deploy = under('/next', as('deploy'));
$deploy->query($_) foreach 'BEGIN', 'DROP TABLE IF EXISTS nothing';
$own->query(release('/next'));
my ($boss) = holder('/next');
is($deploy->errcode(q{INSERT INTO t VALUES ('next')}), '42501', 'another holder, of another role');
$deploy->query('ROLLBACK');
is($boss->query(q{SELECT zk_lock_uses('/next')}), '0', 'whose lock is not used');

# A command that fails, or that waits in a block for its commit, keeps no lock.
my ($short) = holder('/short', undef, as('deploy'));
$deploy->query($_) foreach q{SET zklock.commit_under = '/short'}, 'BEGIN', 'SAVEPOINT a';
is($deploy->errcode('DROP DATABASE postgres'), '25001', 'a command that cannot run in a block');
$deploy->query('ROLLBACK TO a');
is($deploy->errcode(q{DO $$ BEGIN EXECUTE 'ALTER DATABASE postgres CONNECTION LIMIT 77'; EXCEPTION WHEN insufficient_privilege THEN NULL; END $$}),
	'', 'a command that fails within a statement');
$short->query(release('/short'));
is($s->query(acquire('/short', '1 min')), 't', 'in a block, a use begins with the commit only');
$deploy->query('ROLLBACK');
$s->query(release('/short'));

# Another role's read lock is in nobody's way.
my ($first) = holder('/read', 'zk_read_lock_acquire', as('other'));
my ($second) = holder('/read', 'zk_read_lock_acquire', as('deploy'));
$deploy->query(q{SET zklock.commit_under = '/read'});
is($deploy->errcode(q{INSERT INTO t VALUES ('read')}), '', 'two readers, and the later one is of this role');
$second->query(q{SELECT zk_read_lock_release('/read')});
is($deploy->errcode(q{INSERT INTO t VALUES ('read')}), '42501', 'a reader of another role only');

# The lock of a superuser's session stays a superuser's.
my $as_deploy = $north->backend;
$as_deploy->query($_) foreach 'SET ROLE deploy', acquire('/role', '1 min');
$deploy->query(q{SET zklock.commit_under = '/role'});
is($deploy->errcode(q{INSERT INTO t VALUES ('role')}), '42501', 'a superuser holds it who has set the role');

# What a role may not use, it does not count.
$n->query(q{ALTER ROLE other SET zklock.allowed_paths = '/mine'});
my $outside = under('/next', as('other'));
$outside->query('SELECT 1');
is($boss->query(q{SELECT zk_lock_uses('/next')}), '0', 'a session that only reads, and may not use the path');
$n->query('ALTER ROLE other RESET zklock.allowed_paths');

# What another session has prepared.
$n->query(q{BEGIN; INSERT INTO t VALUES ('prepared'); PREPARE TRANSACTION 'z'});
my $prepared = under('/next');
is($prepared->errcode(q{COMMIT PREPARED 'z'}), '', 'a path alone, and COMMIT PREPARED');
quit($own, $deploy, $boss, $short, $first, $second, $as_deploy, $outside, $prepared);

# A value that was stored without a check lets nothing be written.
$n->query(q{INSERT INTO pg_db_role_setting VALUES (0, 'other'::regrole, '{zklock.commit_under=none}')});
my $stored = $north->backend(as('other'));
is($stored->errcode(q{INSERT INTO t VALUES ('stored')}), '22023', 'an invalid value that is stored');
is($stored->errcode('SELECT count(*) FROM t'), '', 'but to read needs no lock');
$stored->quit;
$n->query('ALTER ROLE other RESET zklock.commit_under');

# Rows that a subscription applies depend on no lock, even if their database has the setting.
$s->query('CREATE TABLE applied (v text); CREATE PUBLICATION p FOR TABLE applied');
$n->query($_) foreach 'CREATE DATABASE sub', q{ALTER DATABASE sub SET zklock.commit_under = '/never'};
my $sub = $north->backend(dbname => 'sub');
is($sub->errcode('CREATE TABLE applied (v text)'), 'ZK001', 'the setting of a database');
$sub->query(q{SET zklock.commit_under = ''});
$sub->query('CREATE TABLE applied (v text)');
$sub->query('CREATE SUBSCRIPTION u CONNECTION $$' . $south->connstr('postgres') . '$$ PUBLICATION p');
$s->query(q{INSERT INTO applied VALUES ('row')});
$sub->wait_until('SELECT count(*) = 1 FROM applied');
$sub->query('DROP SUBSCRIPTION u');
$sub->quit;

# --- whose lock it may be ---

$s->query(acquire('/m'));
$g = under('/m');
is($g->errcode(q{INSERT INTO t VALUES ('south')}), 'ZK001', 'held on another server: refused');
$s->query(release('/m'));
my $claim = $n->query(q{SELECT zk_claim_request('/m', '1 h')});
is($n->query("SELECT zk_claim_wait('$claim', '1 min')"), 't', 'a claim that belongs to no session');
is($g->errcode(q{INSERT INTO t VALUES ('claim')}), 'ZK001', 'is no hold of a session');
$g->query('BEGIN');
$g->query("SELECT zk_xact_claim_use('$claim')");
$g->query(q{INSERT INTO t VALUES ('used')});
is($g->errcode('COMMIT'), '', 'but this transaction itself may use it');
$n->query("SELECT zk_claim_release('$claim')");
is($g->run(q{BEGIN; SELECT zk_xact_lock_acquire('/m'); INSERT INTO t VALUES ('own'); COMMIT})->{errcode}, '', 'or have the lock');

$g->quit;
$holder->quit;
($holder, $token) = holder('/m', undef, as('deploy'));
foreach ([ deploy => '' ], [ other => '42501' ], [ postgres => '42501' ])
{
	my ($role, $errcode) = @$_;
	$g = under("$token /m", as($role));
	is($g->errcode(q{INSERT INTO t VALUES ('role')}), $errcode, "a lock of role deploy: $role");
	$g->quit;
}
$n->query('GRANT deploy TO other');
$g = under("$token /m", as('other'));
is($g->errcode(q{INSERT INTO t VALUES ('role')}), '', 'a member of it');
$g->quit;
$n->query(q{ALTER ROLE other SET zklock.allowed_paths = '/x'});
$g = under("$token /m", as('other'));
is($g->errcode(q{INSERT INTO t VALUES ('role')}), '42501', 'but not if the path is forbidden to it');
quit($g, $holder);
$n->query('ALTER ROLE other RESET zklock.allowed_paths');
($holder, $token) = holder('/m', undef, as('boss'));
$g = under("$token /m");
is($g->errcode(q{INSERT INTO t VALUES ('boss')}), '', 'a lock of a superuser, for another one');
quit($g, $holder);

# A lease time.
($holder, $token) = holder('/m', q{SELECT zk_lock_acquire('%s', '1 min', '1 s')});
$holder->query(q{SET zklock.on_lost = 'notice'});
$g = under("$token /m");
$g->query('BEGIN');
$g->query(q{INSERT INTO t VALUES ('lease')});
$north->wait_until(q{SELECT count(*) = 0 FROM zk_locks WHERE path = '/m' AND claim = 'held'});
is($g->errcode('COMMIT'), 'ZK002', 'the lease time is over');
quit($g, $holder);

# --- between the guard and the commit record ---

sub arm { my ($point, $action) = @_; $at = -s $north->logfile; return $north->arm($point, $action); }

# A transaction that stands still behind its guard, under the lock of this holder.
sub behind_guard
{
	my ($path, $function, $v) = @_;
	my ($holder, $token) = holder($path, $function);
	my $g = under("$token $path");
	$g->query('BEGIN');
	$g->query("INSERT INTO t VALUES ('$v')");
	arm('guard-passed');
	$g->send('COMMIT');
	return ($holder, $g, $north->at_point('guard-passed'));
}

# The use that a commit has of a lock is no use that a renewal limits, nor is the next one of this session.
$claim = $n->query(q{SELECT zk_claim_request('/renewed', '1 h')});
is($n->query("SELECT zk_claim_wait('$claim', '1 min')"), 't', 'a claim, to be renewed');
$g = under('/renewed');
$g->query('BEGIN');
$g->query("SELECT zk_xact_claim_use('$claim')");
$g->query(q{INSERT INTO t VALUES ('renewed')});
arm('guard-passed');
$g->send('COMMIT');
my $behind = $north->at_point('guard-passed');
is($n->query("SELECT zk_claim_renew('$claim', '1 s')"), 't', 'renewed while a transaction that uses it commits');
is($n->query(q{SELECT count(*) FROM zk_locks WHERE path = '/renewed' AND lease_ends IS NULL AND claim = 'held'}), '1', 'its commit has no hold limit');
kill 'CONT', $behind;
is($g->result->{errcode}, '', 'it commits');
$north->wait_until(q{SELECT count(*) = 0 FROM zk_locks WHERE path = '/renewed' AND claim = 'held'});
($holder, $token) = holder('/m');
$g->query("SET zklock.commit_under = '$token /m'");
is($g->errcode(q{INSERT INTO t VALUES ('after')}), '', 'nor has its next commit, under another lock');
quit($g, $holder);

sub late_commits { return $all->query('SELECT late_commits FROM zk_stat'); }

# What takes the lock from its holder, and whether that releases it.
sub killed { my ($holder) = @_; my $pid = $holder->pid; $holder->kill_client; $all->wait_until("SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid"); return; }
sub terminated { my ($holder) = @_; my $pid = $holder->pid; $all->query("SELECT pg_terminate_backend($pid, 60000)"); return; }
my %ends = (
	killed => \&killed,
	terminated => \&terminated,
	releases => sub { $_[0]->query('SELECT zk_lock_release_all()'); },
	revoked => sub { $n->query(q{SELECT zk_lock_revoke('/end/revoked')}); killed(@_); },
	lease => sub { $north->wait_until(q{SELECT count(*) = 0 FROM zk_locks WHERE path = '/end/lease' AND claim = 'held' AND session_count > 0}); });
foreach my $end (sort keys %ends)
{
	my $path = "/end/$end";
	my ($holder, $g, $process) = behind_guard($path, $end eq 'lease' ? q{SET zklock.on_lost = 'notice'; SELECT zk_lock_acquire('%s', '1 min', '2 s')} : undef, $end);
	my $queues_before = $end =~ /killed|revoked/;
	my $queue = sub { $s->send(acquire($path, '1 min')); $north->wait_until_contended($path); };
	$queue->() if $queues_before;
	$ends{$end}->($holder);
	my $local = $north->backend;
	is($local->query(acquire($path, '300 ms')), 'f', "$end: another session does not get the lock before the commit") if !$queues_before;
	$queue->() if !$queues_before;
	ok(!$s->is_done, "$end: nor does another server");
	is($all->query("SELECT pid = ${\ $g->pid} FROM zk_locks WHERE path = '$path' AND claim = 'held'"), 't', "$end: the use has it") if $end ne 'lease';
	kill 'CONT', $process;
	is($g->result->{err}, '', "$end: the commit succeeds");
	is(written($end), '1', "$end: it is there");
	is($s->answer, 't', "$end: then the other server has the lock");
	$s->query(release($path));
	quit($holder, $g, $local);
}
is(late_commits(), '0', 'none of them was late');

# A lock for writing: no reader joins, on this server or on another one; afterwards they do.
foreach my $end ('killed', 'downgraded')
{
	my $path = "/rw/$end";
	my ($holder, $g, $process) = behind_guard($path, 'zk_write_lock_acquire', "rw $end");
	my @readers = ($north->backend, $s);
	$readers[1]->send("SELECT zk_read_lock_acquire('$path', '1 min')");
	$north->wait_until_contended($path);
	$holder->query("SELECT zk_read_lock_acquire('$path'), zk_write_lock_release('$path')") if $end eq 'downgraded';
	killed($holder) if $end eq 'killed';
	is($readers[0]->query("SELECT zk_read_lock_acquire('$path', '300 ms')"), 'f', "write lock, $end: no reader of this server");
	ok(!$readers[1]->is_done, "write lock, $end: nor of another one");
	kill 'CONT', $process;
	is($g->result->{err}, '', "write lock, $end: commit");
	is($readers[1]->answer, 't', "write lock, $end: then the other server reads");
	is($readers[0]->query("SELECT zk_read_lock_acquire('$path', '1 min')"), 't', "write lock, $end: and so does this one");
	$s->query("SELECT zk_read_lock_release('$path')");
	quit($holder, $g, $readers[0]);
}
($holder, $token) = holder('/rw/reader', 'zk_read_lock_acquire');
$g = under("$token /rw/reader");
is($g->errcode(q{INSERT INTO t VALUES ('reader')}), '', 'a lock for reading will do');
quit($holder, $g);

# What takes effect before its commit has its use from its beginning.
($holder, $token) = holder('/at/once');
$g = under("$token /at/once");
sub directories { return scalar(() = glob $north->data_dir . '/base/*'); }
my $directories = directories();
arm('use-begun');
$g->send('CREATE DATABASE scratch');
my $creator = $north->at_point('use-begun');
is(directories(), $directories, 'CREATE DATABASE: the lock is kept from its beginning, when nothing is there yet');
killed($holder);
is($s->query(acquire('/at/once', '300 ms')), 'f', 'CREATE DATABASE: another session does not get the lock');
kill 'CONT', $creator;
is($g->result->{errcode}, '', 'CREATE DATABASE: it succeeds');
is($s->query(acquire('/at/once', '1 min')), 't', 'CREATE DATABASE: and then it is free');
$s->query(release('/at/once'));
$g->quit;

# The look and the link are one: a release waits for both.
($holder, $token) = holder('/found');
$g = under("$token /found");
arm('hold-found');
$g->send(q{INSERT INTO t VALUES ('found')});
my $process = $north->at_point('hold-found');
$holder->send(release('/found'));
$north->wait_until(q{SELECT wait_event_type = 'LWLock' FROM pg_stat_activity WHERE pid = } . $holder->pid);
kill 'CONT', $process;
is($g->result->{errcode}, '', 'a release between the look and the link waits');
$holder->result;
is($s->query(acquire('/found', '1 min')), 't', 'and the lock is free');
$s->query(release('/found'));
quit($holder, $g);

# The transaction fails, or its backend ends, with its use.  (NOTIFY makes it wait for another commit behind the guard.)
foreach my $end ('fails', 'cancelled', 'terminated', 'dies')
{
	($holder, $token) = holder("/end/use/$end");
	$g = under("$token /end/use/$end");
	my $notifies = $north->backend;
	$notifies->query('SELECT zk_lock_acquire(\'/notifies\'); BEGIN; NOTIFY x');
	arm('guard-passed');
	$notifies->send('COMMIT');
	my $stopped = $north->at_point('guard-passed');
	$g->query("BEGIN; NOTIFY x; INSERT INTO t VALUES ('use $end')");
	$g->query('CREATE TABLE remote (); TRUNCATE remote; DROP TABLE remote');
	if ($end =~ /fails|dies/)
	{
		arm('use-begun', $end eq 'fails' ? 'fail' : 'die');
		$g->send('COMMIT');
		$north->at_point('use-begun');
	}
	else
	{
		$g->send('COMMIT');
		$all->wait_until(q{SELECT count(*) = 1 FROM pg_locks WHERE NOT granted AND locktype = 'object' AND pid = } . $g->pid);
		is($all->query("SELECT count(*) FROM zk_locks WHERE path = '/end/use/$end' AND pid = ${\ $g->pid} AND claim = 'held'"), '1', "$end: it has its use");
		$all->query(($end eq 'cancelled' ? 'SELECT pg_cancel_backend(' : 'SELECT pg_terminate_backend(') . $g->pid . ')');
	}
	if ($end eq 'dies')
	{
		quit($g, $holder, $notifies, $n, $all);
		$north->wait_for_log(qr/all server processes terminated; reinitializing/, $at);
		$zk->wait_until(sub { eval { $north->safe_psql('postgres', 'SELECT 1'); 1 } }, 'the server to be back');
		$north->wait_until_connected;
		($n, $all) = ($north->backend, $north->backend);
	}
	else
	{
		isnt($g->result->{errcode}, '', "$end: no commit");
		is($all->query("SELECT count(*) FROM zk_locks WHERE path = '/end/use/$end'"), '1', "$end: and no use any more");
		killed($holder);
		kill 'CONT', $stopped;
		$notifies->result;
		quit($notifies, $g);
	}
	is(written("use $end"), '0', "$end: nothing was written");
	is($s->query(acquire("/end/use/$end", '1 min')), 't', "$end: the other server gets the lock");
	$s->query(release("/end/use/$end"));
}

# The worker ends and comes back; the server is cut off, and its session expires: that is late, and said.
($holder, $g, $process) = behind_guard('/worker', undef, 'worker');
my $worker = $north->worker_pid;
$all->query("SELECT pg_terminate_backend($worker, 60000)");
$all->wait_until("SELECT worker_pid <> $worker FROM zk_status");
$north->wait_until_connected;
killed($holder);
is($s->query(acquire('/worker', '300 ms')), 'f', 'another worker: the ticket is kept');
kill 'CONT', $process;
is($g->result->{err}, '', 'another worker: commit');
is($s->query(acquire('/worker', '1 min')), 't', 'another worker: and then it is given up');
$s->query(release('/worker'));
$g->quit;

$north->set_session_timeout($zk, '6s');
($holder, $token) = holder('/cut');
$g = under("$token /cut");
$g->query('BEGIN');
$g->query(q{INSERT INTO t VALUES ('cut')});
my $doubtful = under("$token /cut");
$doubtful->query(q{BEGIN; INSERT INTO t VALUES ('doubtful')});
arm('guard-passed');
$g->send('COMMIT');
$process = $north->at_point('guard-passed');
$worker = $north->worker_pid;
kill 'STOP', $worker;
is($s->query(acquire('/cut', '1 min')), 't', 'cut off: another server has the lock');
is($doubtful->errcode('COMMIT'), 'ZK001', 'cut off: the guard refuses');
kill 'CONT', $process;
$result = $g->result;
kill 'CONT', $worker;
like($result->{err}, qr/WARNING:  01ZK1: transaction committed [\d.]+ ms after lock "\/cut" was last certain/, 'cut off between guard and record: a WARNING');
is(late_commits(), '1', 'and it counts');
$north->wait_until_connected;
$s->query(release('/cut'));

quit($holder, $g, $doubtful, $n, $all, $s);
$_->stop foreach $north, $south;
done_testing();
