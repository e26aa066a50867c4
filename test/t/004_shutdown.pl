# A clean stop frees a server's locks at once, but not before their holders are done.

use strict;
use warnings;

use IPC::Run;
use Time::HiRes qw(time);

use HoldingProxy;
use ZklockTest;

my $zk = ZooKeeper->new;

# A release that comes much earlier than this did not have to wait for the session's expiry.
my $long = 30;
my $soon = 25;

# A server whose connection a ZooKeeper accepts and forgets while it starts tries again after a
# third of the session timeout.
my @settings = ('zklock.session_timeout' => "${long}s", 'zklock.connection_timeout' => '1min', 'zklock.linger' => 0);
my $node_a = ZklockNode->started('a', $zk, @settings,
	'log_min_messages' => 'debug1',
	'max_connections' => 20,
	'synchronous_commit' => 'off',
	'init' => [ allows_streaming => 1 ]);
my $node_b = ZklockNode->started('b', $zk, @settings);
$node_a->safe_psql('postgres', 'CREATE TABLE work (done text)');

my $waiter = $node_b->backend;
my $judge = $node_b->backend;

my ($log_at, $session, $worker, $shutdown);

sub prepare
{
	my ($path) = @_;
	$node_a->start unless defined $node_a->{_pid};
	$node_a->wait_until_connected;
	$log_at = -s $node_a->logfile;
	$session = $node_a->status('session_id');
	$worker = $node_a->worker_pid;
	my $holder = $node_a->backend;
	$holder->query(acquire($path));
	$waiter->send(acquire($path));
	$judge->wait_until("SELECT count(*) > 0 FROM zk_locks WHERE path = '$path' AND ticket = 'queued'");
	return $holder;
}

# Begin to stop the server, and go on when the postmaster has received the signal; the server may
# even be down.
sub begin_stop
{
	my ($mode, $node) = (@_, $node_a);
	$shutdown = IPC::Run::start([ 'pg_ctl', '-D', $node->data_dir, '-m', $mode, '-t', 180, 'stop' ],
		'>', \my $output);
	$zk->wait_until(
		sub {
			my $state = eval { slurp_file($node->data_dir . '/postmaster.pid') };
			return !defined $state || $state =~ /^stopping\s*$/m;
		},
		'the shutdown to begin');
	return;
}

sub end_stop
{
	my ($what, $node) = (@_, $node_a);
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok($shutdown->finish, "$what: the shutdown is done");
	$node->_update_pid(0);
	return;
}

# The server has ended, and left everything in order.
sub is_clean
{
	my ($path, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($waiter->answer, 't', "$what: the lock is free");
	$waiter->query('SELECT zk_lock_release_all()');
	ok($node_a->log_contains('closed the ZooKeeper session', $log_at), "$what: the session was closed");
	ok($node_a->log_contains("background worker \"zklock worker\" \\(PID $worker\\) exited with exit code 0", $log_at),
		"$what: the worker's exit code is 0");
	ok(!$node_a->log_contains('PANIC|terminated by signal|TRAP|still held', $log_at), "$what: nothing bad is in the log");
	unlike($zk->cmd('dump'), qr/$session/, "$what: the session is gone");
	$zk->wait_for_children("/zklock$path", 0);
	return;
}

# How many packets the server has had in this session, or undef where there is no session.
sub packets
{
	my ($n) = $zk->cmd('cons') =~ /recved=(\d+)[^\n]*sid=$session\b/;
	return $n;
}

# The worker has received its signal, and has done what it does at once: it was seen to go on after
# the signal.
sub wait_until_worker_knows
{
	$zk->wait_until(
		sub {
			my ($pending) = slurp_file("/proc/$worker/status") =~ /^ShdPnd:\s+(\S+)$/m;
			return !(hex($pending) & 1 << 14);
		},
		'the worker to have its signal');
	my $before = packets();
	$zk->wait_until(sub { my $now = packets(); return !defined $now || $now > $before + 1 },
		'the worker to go on');
	return;
}

# --- fast, with a holder in each state ---------------------------------------------------

my $holder = prepare('/fast');
my $in_transaction = $node_a->backend;
$in_transaction->query("BEGIN; SELECT zk_xact_lock_acquire('/fast2')");
my $local_waiter = $node_a->backend;
$local_waiter->send(acquire('/fast'));
$node_a->wait_for_waiter('/fast', 1);
$judge->query(acquire('/fast3'));
my $far_waiter = $node_a->backend;
$far_waiter->send(acquire('/fast3', '1h'));
$node_a->wait_for_ticket('/fast3', 'queued');

my $stopped_at = time;
$node_a->stop('fast');
is_clean('/fast', 'fast');
cmp_ok(time - $stopped_at, '<', $soon, 'fast: long before the session would expire');
is($_->result->{errcode}, '57P01', 'fast: a waiter is told') foreach $local_waiter, $far_waiter;
$zk->wait_for_children('/zklock/fast2', 0);
$zk->wait_for_children('/zklock/fast3', 1);
$judge->query(release('/fast3'));

# --- fast, with a holder that takes its time ----------------------------------------------

$holder = prepare('/slow');
my $bystander = $node_a->backend;
$holder->query("BEGIN; INSERT INTO work VALUES ('slow')");
kill 'STOP', $holder->pid;
begin_stop('fast');
$zk->wait_until(sub { my %children = $node_a->children; !exists $children{ $bystander->pid } },
	'other backends to end');
wait_until_worker_knows();
ok(defined packets(), 'slow holder: the session lives while there is a holder');
is($judge->query("SELECT ticket FROM zk_locks WHERE path = '/slow'"), 'queued', 'slow holder: it holds the lock');
ok(!$waiter->is_done, 'slow holder: no other backend has it');
kill 'CONT', $holder->pid;
end_stop('slow holder');
is_clean('/slow', 'slow holder');

# --- fast, with a holder in its commit -----------------------------------------------------

$holder = prepare('/commit');
$node_a->hang_commits;
my $committer = $node_a->backend;
$committer->query('SET synchronous_commit = on');
$committer->query("BEGIN; INSERT INTO work VALUES ('committed'); SELECT zk_xact_lock_acquire('/commit2'), zk_xact_run_once('/commit3')");
$committer->send('COMMIT');
$node_a->wait_until("SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = " . $committer->pid);
is($judge->query(try('/commit2')), 'f', 'in COMMIT: the lock is held to its end');

# A cancel ends the wait for the standby, and PostgreSQL confirms the commit.
my $cancelled = $node_a->backend;
$cancelled->query('SET synchronous_commit = on');
$cancelled->query(q{BEGIN; INSERT INTO work VALUES ('cancelled'); DELETE FROM work WHERE done = 'cancelled'; SELECT zk_xact_run_once('/commit4')});
$cancelled->send('COMMIT');
$node_a->wait_until("SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = " . $cancelled->pid);
$node_a->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $cancelled->pid . ')');
like($cancelled->result->{err}, qr/WARNING: .*canceling wait for synchronous replication/, 'in COMMIT: cancelled');
$judge->send(acquire('/commit2'));
$node_b->wait_for_ticket('/commit2', 'queued');
begin_stop('fast');
is($judge->answer, 't', 'in COMMIT: then it is free');
$judge->query(release('/commit2'));
end_stop('in COMMIT');
is_clean('/commit', 'in COMMIT');
is($judge->query(q{SELECT state FROM zk_jobs WHERE path = '/commit3'}), 'failed', 'in COMMIT: a run is not done that no standby has confirmed');
is($judge->query(q{SELECT state FROM zk_jobs WHERE path = '/commit4'}), 'done', 'in COMMIT: but it is after a cancel');
$node_a->configure('synchronous_standby_names' => '');
$node_a->start;
is($node_a->safe_psql('postgres', 'SELECT done FROM work'), 'committed', 'in COMMIT: what it wrote is there');

# --- smart ------------------------------------------------------------------------------------

$holder = prepare('/smart');
begin_stop('smart');
is($holder->query(held('/smart')), 't', 'smart: a session goes on');
is($holder->query("SELECT zk_lock_acquire('/smart'), zk_lock_release('/smart')"), 't|t', 'smart: with its locks');
is($holder->query(acquire('/smart2')), 't', 'smart: and can take others');
ok(!$waiter->is_done, 'smart: others wait');
is($judge->query(try('/smart2')), 'f', 'smart: for all its locks');
$holder->quit;
end_stop('smart');
is_clean('/smart', 'smart');

# Both processes end, and the worker first.  While the postmaster stands still, it starts neither.
$holder = prepare('/smart');
my $onlooker = $node_a->backend;
my $process = q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'zklock %s'};
my $claims = $onlooker->query(sprintf $process, 'claims');
my ($postmaster) = slurp_file($node_a->data_dir . '/postmaster.pid') =~ /^(\d+)/;
begin_stop('smart');
kill 'STOP', $postmaster;
foreach my $ends ([ 'INT', $worker, 'worker' ], [ 'TERM', $claims, 'claims' ])
{
	kill $ends->[0], $ends->[1];
	$onlooker->wait_until("SELECT NOT EXISTS (" . sprintf($process, $ends->[2]) . ')');
}
kill 'CONT', $postmaster;
# In a shutdown, the postmaster starts processes only when something else wakes it.
$zk->wait_until(
	sub {
		kill 'HUP', $postmaster;
		return $onlooker->query('SELECT connected_since IS NOT NULL AND safe FROM zk_status') eq 't';
	},
	'the next worker to be connected');
is($onlooker->query('SELECT session_id FROM zk_status'), $session, 'smart, no worker: the next one continues the session');
is($holder->query(held('/smart')), 't', 'smart, no worker: the lock is held');
ok(!$waiter->is_done, 'smart, no worker: others wait');
is($holder->errcode("INSERT INTO work VALUES ('smart')"), '', 'smart, no worker: a commit is accepted');
$worker = $onlooker->query('SELECT worker_pid FROM zk_status');
# That worker cannot tell this signal from the postmaster's.
kill 'TERM', $worker;
$zk->wait_until(sub { $onlooker->errcode("SELECT zk_lock_acquire('/new'), zk_lock_release('/new')") eq '57P01' },
	'no lock to be granted');
is($holder->query(held('/smart')), 't', 'smart, worker terminated: it closes the session only when no lock is held');
is($holder->errcode("INSERT INTO work VALUES ('smart')"), '', 'smart, worker terminated: a commit is accepted');
$_->quit foreach $holder, $onlooker;
end_stop('smart, no worker');
is_clean('/smart', 'smart, no worker');

# --- restart -----------------------------------------------------------------------------------

$holder = prepare('/restart');
$node_a->restart;
is_clean('/restart', 'restart');
$node_a->wait_until_connected;
isnt($node_a->status('session_id'), $session, 'restart: there is a new session');
is($node_a->safe_psql('postgres', acquire('/restart')), 't', 'restart: it works');
ok(!$node_a->log_contains('that an earlier run', $log_at), 'restart: there was no old session');

# --- while ZooKeeper is silent, or away -----------------------------------------------------------

# The worker waits for the answer to a create, at the moment at which it should give a lingering
# lock up.
$holder = prepare('/silent');
$node_a->set('zklock.linger', '1s');
$holder->query("SELECT zk_lock_acquire('/lingers'), zk_lock_release('/lingers')");
my $late = $node_a->backend;
my $cpu_before = $node_a->worker_cpu;
my $creates = $node_a->safe_psql('postgres', 'SELECT creates FROM zk_stat');
my $cpu;
$zk->pause;
$late->send(acquire('/silent2'));
$node_a->wait_until("SELECT creates > $creates FROM zk_stat");
begin_stop('fast');
$zk->wait_until(sub { my $now = eval { ZklockNode::cpu_of($worker) }; $cpu = $now // $cpu; return !defined $now },
	'the worker to end');
end_stop('silent ZooKeeper');
cmp_ok($cpu - $cpu_before, '<', 0.3, 'silent ZooKeeper: the worker sleeps while it waits for the last answer');
$stopped_at = time;
$zk->resume;
is($waiter->answer, 't', 'silent ZooKeeper: when it speaks again, the lock is free');
cmp_ok(time - $stopped_at, '<', $soon, 'silent ZooKeeper: long before the session would expire');
$waiter->query('SELECT zk_lock_release_all()');

$holder = prepare('/away');
$zk->stop;
$node_a->stop('fast');
ok($node_a->log_contains('leaving the ZooKeeper session to expire, because ZooKeeper cannot be reached', $log_at),
	'no ZooKeeper: the server stops all the same, and says what it leaves');
$zk->start;
$log_at = -s $node_a->logfile;
$stopped_at = time;
$node_a->start;
is($waiter->answer, 't', 'no ZooKeeper: the next start frees the lock');
cmp_ok(time - $stopped_at, '<', $soon, 'no ZooKeeper: long before the session would expire');
$node_a->wait_for_log(qr/closed the ZooKeeper session that an earlier run of this server left behind/, $log_at);
pass('no ZooKeeper: the log says so');
ok(!$node_a->log_contains('crash', $log_at), 'no ZooKeeper: and speaks of no crash');
$waiter->query('SELECT zk_lock_release_all()');

$node_a->wait_until_connected;
$zk->wait_for_children('/zklock/away', 0);
is_deeply([ grep { /-lock-/ } @{ $zk->tree('/zklock') } ], [], 'no znode is left');

# ZooKeeper's server is lost just before the stop: nothing tells whether it has read the end of the session.
my $proxy = HoldingProxy->new($zk->hosts);
my $node_c = ZklockNode->started('c', undef, @settings, 'zklock.session_timeout' => '1min', 'zklock.hosts' => $proxy->address);
my $lost = $node_c->backend;
$lost->query(acquire('/unread'));
$waiter->send(acquire('/unread'));
$judge->wait_until(q{SELECT count(*) > 0 FROM zk_locks WHERE path = '/unread' AND ticket = 'queued'});
$proxy->hold('requests');
$node_c->stop('fast');
$proxy->cut;
$stopped_at = time;
$node_c->start;
is($waiter->answer, 't', 'no reply to the release: the next start frees the lock');
cmp_ok(time - $stopped_at, '<', $soon, 'no reply to the release: long before the session would expire');

# --- between two handles, and between two workers ---

sub holds_against_waiter
{
	my ($path) = @_;
	$node_c->wait_until_connected;
	$log_at = -s $node_c->logfile;
	$lost = $node_c->backend;
	$lost->query(acquire($path));
	$waiter->send(acquire($path));
	$judge->wait_until("SELECT count(*) > 0 FROM zk_locks WHERE path = '$path' AND ticket = 'queued'");
	return;
}

# The new handle has no connection yet.
my $other = HoldingProxy->new($zk->hosts);
holds_against_waiter('/moved');
$other->hold('replies');
$node_c->configure('zklock.hosts' => $other->address);
$node_c->reload;
$node_c->wait_for_log(qr/because "zklock.hosts" was changed/, $log_at);
$stopped_at = time;
begin_stop('fast', $node_c);
$other->pass;
is($waiter->answer, 't', 'other servers: the lock is free');
cmp_ok(time - $stopped_at, '<', $soon, 'other servers: long before the session would expire');
end_stop('other servers', $node_c);
ok($node_c->log_contains('closed the ZooKeeper session', $log_at), 'other servers: the session was closed');

# PostgreSQL does not start the worker again.  While the postmaster stands still, both signals come.
$node_c->start;
holds_against_waiter('/between');
$worker = $node_c->worker_pid;
($postmaster) = slurp_file($node_c->data_dir . '/postmaster.pid') =~ /^(\d+)/;
kill 'STOP', $postmaster;
kill 'TERM', $worker;
$lost->wait_until('SELECT worker_pid IS NULL FROM zk_status');
kill 'INT', $postmaster;
kill 'CONT', $postmaster;
$zk->wait_until(sub { !-e $node_c->data_dir . '/postmaster.pid' }, 'the server to end');
$node_c->_update_pid(0);
is(() = slurp_file($node_c->logfile, $log_at) =~ /leaving the ZooKeeper session to expire, because the zklock worker is not running/g,
	1, 'between two workers: the log says what becomes of the locks');
$node_c->start;
is($waiter->answer, 't', 'between two workers: the next start frees them');

$_->stop foreach $node_a, $node_b, $node_c;
done_testing();
