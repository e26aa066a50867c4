# The worker ends and comes back, and is told of new settings, while locks are in use.

use strict;
use warnings;

use ZklockTest;

my $zk = ZooKeeper->new(servers => 3);
my @hosts = split /,/, $zk->hosts;

my @settings = (
	'zklock.session_timeout' => '20s',
	'zklock.linger' => 0,
	'zklock.tenure' => '1h');
my $node_a = ZklockNode->started('a', $zk, @settings);
my $node_b = ZklockNode->started('b', $zk, @settings);
my $judge = $node_a->backend;

# --- how it is seen --------------------------------------------------------------------

is($judge->query("SELECT backend_type, datname, wait_event_type FROM pg_stat_activity"
		. ' WHERE pid = (SELECT worker_pid FROM zk_status)'),
	'zklock worker||Extension', 'the worker is in pg_stat_activity');

# --- pg_terminate_backend ------------------------------------------------------------------

sub terminate_worker
{
	my $old = $judge->query('SELECT worker_pid FROM zk_status');
	my $offset = -s $node_a->logfile;
	$judge->query("SELECT pg_terminate_backend($old)");
	$node_a->wait_for_log(qr/LOG:  restarting the background worker "zklock worker", because it was terminated/, $offset);
	$judge->wait_until("SELECT worker_pid <> $old AND state IN ('connected', 'idle') AND safe FROM zk_status");
	return;
}

sub all_claims
{
	return $judge->query("SELECT string_agg(concat_ws(' ', path, claim, pid, token, ticket, znode), E'\n'"
		. ' ORDER BY path, claim, pid) FROM zk_locks');
}

my $session = $judge->query('SELECT session_id, epoch FROM zk_status');
my $holder = $node_a->backend;
$holder->query(acquire('/held'));
$holder->query("BEGIN; CREATE TABLE written (t text); SELECT zk_xact_lock_acquire('/xact')");
my $near_waiter = $node_a->backend;
$near_waiter->send(acquire('/held'));
$node_a->wait_for_waiter('/held', 1);

my ($far_holder, $far_waiter, $far) = map { $node_b->backend } 1 .. 3;
$far_holder->query(acquire('/far'));
my $queued = $node_a->backend;
$queued->send(acquire('/far'));
$node_a->wait_for_ticket('/far', 'queued');
$far_waiter->send(acquire('/held'));
$node_b->wait_for_ticket('/held', 'queued');
$node_a->wait_until_contended('/held');

my $claims = all_claims();
foreach my $round (1 .. 3)
{
	terminate_worker();
	is($judge->query('SELECT session_id, epoch FROM zk_status'), $session, "terminated, $round: the session is the same");
	is(all_claims(), $claims, "terminated, $round: so are all claims, tokens and znodes");
	is($holder->query("SELECT zk_lock_is_held('/held'), zk_lock_is_held('/xact')"), 't|t', "terminated, $round: held");
	is($far->query("SELECT zk_lock_acquire('/held', '0'), zk_lock_acquire('/xact', '0')"), 'f|f',
		"terminated, $round: others are excluded");
}
is(scalar @{ $zk->children('/zklock/far') }, 2, 'terminated: one znode in the queue');
is($holder->query('COMMIT; SELECT count(*) FROM written'), '0', 'terminated: the transaction commits');
$far_holder->query(release('/far'));
is($queued->answer, 't', 'terminated: a waiter in the queue of ZooKeeper goes on');
$queued->query(release('/far'));
$holder->query(release('/held'));
is($near_waiter->answer, 't', 'terminated: a local waiter goes on');
ok(!$far_waiter->is_done, 'terminated: the other server waits');
$near_waiter->query(release('/held'));
is($far_waiter->answer, 't', 'terminated: until no backend of the first server wants it');
$far_waiter->query(release('/held'));

# A request that is made without a worker is carried out by the next worker.
my $old = $judge->query('SELECT worker_pid FROM zk_status');
$holder->query(acquire('/meanwhile/release'));
$judge->query("SELECT pg_terminate_backend($old)");
$judge->wait_until("SELECT worker_pid IS DISTINCT FROM $old FROM zk_status");
is($holder->query("SELECT zk_lock_release('/meanwhile/release'), zk_lock_acquire('/meanwhile/acquire'), zk_lock_acquire('/meanwhile/try', '0')"),
	't|t|t', 'released and acquired without a worker');
$zk->wait_for_children('/zklock/meanwhile/release', 0);
$holder->query('SELECT zk_lock_release_all()');

# The worker ends again and again while backends lock and release.
$_->safe_psql('postgres', 'CREATE TABLE tokens (token bigint); CREATE TABLE finished ()') foreach $node_a, $node_b;
my @busy = map { ($node_a->backend, $node_b->backend) } 1, 2;
my $work = q{
	DO $$
	BEGIN
		WHILE NOT EXISTS (SELECT FROM finished) LOOP
			PERFORM zk_lock_acquire('/busy');
			INSERT INTO tokens VALUES (zk_lock_token('/busy'));
			PERFORM zk_lock_release('/busy');
			COMMIT;
			PERFORM pg_sleep(0.005);
		END LOOP;
	END $$};
$_->set('zklock.tenure', '10ms') foreach $node_a, $node_b;
$_->send($work) foreach @busy;
foreach my $restart (1 .. 5)
{
	my $claims = $judge->query('SELECT claims FROM zk_status');
	terminate_worker();
	$judge->wait_until("SELECT claims >= $claims + 50 FROM zk_status");
}
$_->safe_psql('postgres', 'INSERT INTO finished DEFAULT VALUES') foreach $node_a, $node_b;
is($_->result->{err} =~ s/.*ZklockBackend.*\n//r, '', 'busy: no error') foreach @busy;
my @tokens = split /\n/, join "\n", map { $_->safe_psql('postgres', 'SELECT token FROM tokens') } $node_a, $node_b;
my %tokens = map { $_ => 1 } @tokens;
cmp_ok(scalar @tokens, '>=', 5 * 50, 'busy: there were many claims');
is(scalar keys %tokens, scalar @tokens, 'busy: every claim had a token of its own, on both servers');
$_->wait_until_clean('/busy') foreach $node_a, $node_b;
$zk->wait_for_children('/zklock/busy', 0);
is($judge->query('SELECT session_id, epoch FROM zk_status'), $session, 'busy: the session is the same');
$_->set('zklock.tenure', '1h') foreach $node_a, $node_b;

# --- other commands that wait for all processes ------------------------------------------------

$holder->query(acquire('/held'));
$far_waiter->send(acquire('/held'));
$node_b->wait_for_ticket('/held', 'queued');
$judge->query("SET statement_timeout = '60s'");
foreach my $command (
	'CREATE DATABASE d', 'CREATE DATABASE d2 TEMPLATE d', 'ALTER DATABASE d RENAME TO d3',
	'DROP DATABASE d2', 'DROP DATABASE d3 WITH (FORCE)', 'CHECKPOINT',
	'SET allow_in_place_tablespaces = on', q{CREATE TABLESPACE ts LOCATION ''}, 'DROP TABLESPACE ts',
	'DROP EXTENSION zklock', 'CREATE EXTENSION zklock')
{
	is($judge->errcode($command), '', "not blocked while a lock is held: $command");
}
is($holder->query(held('/held')), 't', 'which still is');
is($node_b->errcode('CREATE DATABASE d') . $node_b->errcode('DROP DATABASE d'), '',
	'nor where one is waited for');

# --- another list of servers --------------------------------------------------------------------

sub reload_hosts
{
	my ($hosts) = @_;
	my $at = -s $node_a->logfile;
	$node_a->set('zklock.hosts', $hosts);
	$node_a->wait_for_log(qr/because "zklock.hosts" was changed.*connected to ZooKeeper server/s, $at);
	$judge->wait_until("SELECT state IN ('connected', 'idle') AND safe FROM zk_status");
	return;
}

my $token = $holder->query(token('/held'));
foreach my $hosts (join(',', reverse @hosts), $hosts[0], "$hosts[1]", "$hosts[2], $hosts[0]", join(',', @hosts))
{
	reload_hosts($hosts);
	my $what = 'hosts ' . ($hosts =~ s/127.0.0.1://gr);
	is($judge->query('SELECT session_id, epoch FROM zk_status'), $session, "$what: the session is the same");
	my $server = $judge->query('SELECT server FROM zk_status');
	ok((grep { $_ eq $server } split /, */, $hosts), "$what: connected to one of them");
	is($holder->query("SELECT zk_lock_is_held('/held'), zk_lock_token('/held')"), "t|$token", "$what: held, with its token");
	is($far->query(try('/held')), 'f', "$what: others are excluded");
}

# --- what is refused ----------------------------------------------------------------------------------

my $good = $judge->query('SHOW zklock.hosts');
my $worker = $judge->query('SELECT worker_pid FROM zk_status');
foreach my $case (
	[ "$good/elsewhere", 'The chroot after the servers cannot be changed without a restart' ],
	[ 'localhost:port', 'Servers are given as' ],
	[ 'localhost:99999', 'Servers are given as' ],
	[ '', 'Servers are given as' ],
	[ "$hosts[0],,$hosts[1]", 'Servers are given as' ])
{
	my ($hosts, $detail) = @$case;
	my $at = -s $node_a->logfile;
	$node_a->configure('zklock.hosts' => $hosts);
	$node_a->reload;
	$node_a->wait_for_log(qr/LOG:  invalid value for parameter "zklock.hosts": "\Q$hosts\E"/, $at);
	ok($node_a->log_contains($detail, $at), "reload with hosts \"$hosts\": said in the log");
	is($judge->query('SHOW zklock.hosts'), $good, 'and it stays as it was');
}
is($judge->query('SELECT worker_pid, state FROM zk_status'), "$worker|connected", 'the worker is not concerned');
$node_a->configure('zklock.hosts' => $good);
$node_a->reload;
is($holder->query(held('/held')), 't', 'nor is the lock');
$holder->query(release('/held'));
is($far_waiter->answer, 't', 'which is handed over in the end');
$far_waiter->query(release('/held'));

# --- linger ------------------------------------------------------------------------------------------

$node_a->set('zklock.linger', '1h');
$judge->wait_until("SELECT current_setting('zklock.linger') = '1h'");
my $twice = join '; ', (acquire('/linger'), release('/linger')) x 2;
$judge->query($twice);
$node_a->wait_for_ticket('/linger', 'lingering');
$node_a->set('zklock.linger', '100ms');
ok($node_a->poll_query_until('postgres', "SELECT count(*) = 0 FROM zk_locks WHERE path = '/linger'"),
	'a shorter linger is for tickets that linger already, too');
$judge->wait_until("SELECT current_setting('zklock.linger') = '100ms'");
$judge->query($twice);
ok($node_a->poll_query_until('postgres', "SELECT count(*) = 0 FROM zk_locks WHERE path = '/linger'"),
	'and for the next ones');

# --- settings with which the server does not start ----------------------------------------------------

$_->quit foreach $judge, $holder, $near_waiter, $queued, $far_holder, $far_waiter, $far, @busy;
$_->stop foreach $node_a, $node_b;

my %default = (
	'zklock.hosts' => $good,
	'zklock.root' => '/zklock',
	'zklock.session_timeout' => '20s',
	'zklock.max_locks' => 100,
	'zklock.linger' => '1s');
foreach my $case (
	[ 'zklock.hosts', '', 'Servers are given as' ],
	[ 'zklock.hosts', 'a:b', 'Servers are given as' ],
	[ 'zklock.hosts', "$good/a//b", 'empty component' ],
	[ 'zklock.root', 'relative', 'must begin with a slash' ],
	[ 'zklock.root', '/a/', 'must not end with a slash' ],
	[ 'zklock.root', '/zookeeper/locks', 'reserved' ],
	[ 'zklock.session_timeout', '10ms', 'outside the valid range' ],
	[ 'zklock.max_locks', '15', 'must be at least 16, or -1' ],
	[ 'zklock.linger', '-1', 'outside the valid range' ])
{
	my ($name, $value, $message) = @$case;
	my $at = -s $node_a->logfile;
	$node_a->configure(%default, $name => $value);
	ok(!$node_a->start(fail_ok => 1), "the server does not start with $name = '$value'");
	$node_a->stop if defined $node_a->{_pid};
	my $log = slurp_file($node_a->logfile, $at);
	like($log, qr/FATAL:.*"$name"/, 'because of that');
	like($log, qr/$message/, 'and says why');
	unlike($log, qr/PANIC|terminated by signal|TRAP/, 'in good order');
}
$node_a->configure(%default);
ok($node_a->start, 'it starts with others');
$node_a->wait_until_connected;
is($node_a->safe_psql('postgres', acquire('/held')), 't', 'and works');

$node_a->stop;
done_testing();
