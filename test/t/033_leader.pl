
# Leadership of a server: zklock.leader_of, zk_is_leader, zk_leaders, zk_leader_resign.

use strict;
use warnings;

use InteropPeer;
use FindBin;

use ZklockTest;

my $path = '/leaders/cron';
my $zk = ZooKeeper->new;
my %settings = ('zklock.session_timeout' => '30s', 'zklock.leader_of' => $path);
my $north = ZklockNode->started('north', $zk, %settings, init => [ allows_streaming => 1 ]);

sub leads
{
	my ($node, $what) = @_;
	return $node->safe_psql('postgres', "SELECT zk_is_leader('" . ($what // $path) . "')");
}

sub wait_until_leads
{
	my ($node, $what) = @_;
	return $node->wait_until("SELECT zk_is_leader('" . ($what // $path) . "')");
}

# The servers that stand for a path, in their order; the first one leads.
sub line
{
	my ($node, $what) = @_;
	return $node->safe_psql('postgres', "SELECT string_agg(coalesce(server, '-') || CASE WHEN leads THEN '*' ELSE '' END, ' ' ORDER BY position)"
		  . " FROM zk_leaders WHERE path = '" . ($what // $path) . "'");
}

sub wait_for_line
{
	my ($node, $expected, $what) = @_;
	return $node->poll_query_until('postgres', "SELECT string_agg(coalesce(server, '-') || CASE WHEN leads THEN '*' ELSE '' END, ' ' ORDER BY position)"
		  . " FROM zk_leaders WHERE path = '" . ($what // $path) . "'", $expected);
}

# --- which server leads ---

wait_until_leads($north);
my $south = ZklockNode->started('south', $zk, %settings, 'restart_after_crash' => 'on');
ok(wait_for_line($south, 'north* south'), 'the first one leads, the second one stands behind');
is(leads($north) . leads($south), 'tf', 'and each knows whether it leads');
is($north->safe_psql('postgres', q{SELECT application FROM zk_leaders WHERE leads}), 'zklock leader', 'the leadership has a name');
is($north->safe_psql('postgres', qq{
	SELECT l.claim, a.backend_type, l.usename IS NULL FROM zk_locks l JOIN pg_stat_activity a USING (pid) WHERE path = '$path'}),
	'held|zklock claims|t', 'zk_locks shows it as the claim of no role');
is(leads($north, '/leaders/none'), 'f', 'no server leads for a path for which none stands');
is($north->errcode("SELECT zk_is_leader('relative')"), '22023', 'an invalid path');
my $requests = $north->status('requests');
leads($north) foreach 1 .. 5;
is($north->status('requests'), $requests, 'zk_is_leader asks ZooKeeper nothing');

# The commit guard would refuse the statement, so it is told that the server does not lead.
is($north->safe_psql('postgres', "SET zklock.commit_margin = '30s'; SELECT zk_is_leader('$path')"), 'f', 'not within the margin of the guard');

{
	local @ENV{qw(PGHOST PGPORT)} = ($north->host, $north->port);
	my $said = qx{make -s -C "$FindBin::RealBin/../.." installcheck 2>&1};
	isnt($?, 0, 'make installcheck refuses a server that stands for leaderships');
	like($said, qr/^make installcheck: not on a server that stands for leaderships: zklock.leader_of is/m, 'and says so');
}

# Backends of the leader's own server wait like any other backend.
foreach my $node ($north, $south)
{
	is($node->safe_psql('postgres', try($path)), 'f', $node->name . ': a try gets nothing');
	is($node->backend->run_again(acquire($path, '300 ms'))->{out}, 'f', $node->name . ': nor does a wait');
}
is($north->errcode("SELECT zk_read_lock_acquire('$path', '0')"), 'ZK003', 'the path is a mutex');

my $waiter = $north->backend;
$waiter->send(acquire($path));
$north->wait_for_waiter($path, 1);
$north->safe_psql('postgres', 'CREATE ROLE terminator LOGIN IN ROLE pg_signal_backend');
is($north->errcode("SET SESSION AUTHORIZATION terminator; SELECT zk_lock_force_release('$path')"), '42501',
	'only a superuser takes a leadership by force');
is($south->safe_psql('postgres', "SELECT zk_leader_resign('$path', '1 hour')"), 'f', 'one that waits resigns');
is($north->safe_psql('postgres', "SET SESSION AUTHORIZATION terminator; SELECT zk_leader_resign('$path')"), 't', 'the leader resigns');
is($waiter->answer, 't', 'a backend of its server has the lock then');
is(leads($north), 'f', 'while the server does not lead');
$waiter->quit;
wait_until_leads($north);
$south->restart;
ok(wait_for_line($south, 'north* south'), 'and again as before');

# --- the guard ---

$north->safe_psql('postgres', 'CREATE TABLE t (v text)');

# A transaction of the leader that is open while its leadership is disturbed.
sub relies
{
	my ($what, $happens, %expect) = @_;
	my $backend = $north->backend;
	wait_until_leads($north);
	is($backend->query("BEGIN; INSERT INTO t VALUES ('$what'); SELECT zk_is_leader('$path')"), 't', "$what: leads");
	is($backend->query(token($path)),
		$north->safe_psql('postgres', "SELECT token FROM zk_locks WHERE path = '$path'"), "$what: the leadership's token");
	$happens->();
	is($backend->errcode("SAVEPOINT s; SELECT zk_lock_token('$path')"), $expect{errcode} // 'ZK001', "$what: token");
	$backend->query('ROLLBACK TO s');
	if ($expect{leads_anew})
	{
		is($backend->errcode("SELECT zk_is_leader('$path')"), 'ZK001', "$what: asks again");
		$backend->query('ROLLBACK TO s');
	}
	my $result = $backend->run('COMMIT');
	is($result->{errcode}, $expect{errcode} // 'ZK001', "$what: commit");
	like($result->{err}, qr/leadership of "\Q$path\E" has ended.*HINT/s, "$what: says why") if !exists $expect{errcode};
	$backend->quit;
	return;
}

is($north->errcode(token($path)), '55000', 'a transaction that does not rely on the leadership has no token');
relies('nothing happens', sub { }, errcode => '');
relies('resigned', sub {
	is($north->safe_psql('postgres', "SELECT zk_leader_resign('$path')"), 't', 'resigns');
	wait_until_leads($south);
	ok(wait_for_line($north, 'south* north'), 'resigned: goes to the end of the queue');
	is(leads($north), 'f', 'resigned: leads no longer');
});
is($south->safe_psql('postgres', "SELECT zk_leader_resign('$path')"), 't', 'the other one resigns');

# It leads again before the commit; but another server has led meanwhile.
relies('leads again meanwhile', sub {
	$north->safe_psql('postgres', "SELECT zk_leader_resign('$path')");
	wait_until_leads($south);
	$south->safe_psql('postgres', "SELECT zk_leader_resign('$path')");
	wait_until_leads($north);
}, leads_anew => 1);

relies('znode deleted', sub {
	$south->safe_psql('postgres', "SELECT zk_lock_force_release('$path')");
	wait_until_leads($south);
	$south->safe_psql('postgres', "SELECT zk_leader_resign('$path')");
	wait_until_leads($north);
});
relies('session expired', sub { $north->expire_session($zk, by_hand => 1); wait_until_leads($south); });
$south->safe_psql('postgres', "SELECT zk_leader_resign('$path')");
wait_until_leads($north);
is($north->safe_psql('postgres', q{SELECT count(*) FROM t WHERE v <> 'nothing happens'}), '0', 'nothing was written by a deposed leader');

# A transaction that only reads relies on it, too; a session does not.
my $reader = $north->backend;
$reader->query("BEGIN; SELECT zk_is_leader('$path'); SAVEPOINT s");
$north->safe_psql('postgres', "SELECT zk_leader_resign('$path')");
is($reader->errcode('ROLLBACK TO s; COMMIT'), 'ZK001', 'a transaction that reads relies on it, too');
is($reader->errcode(q{INSERT INTO t VALUES ('fine')}), '', 'but only in that transaction');
$reader->quit;
wait_until_leads($south);
is($south->errcode("BEGIN; SELECT zk_is_leader('$path'); PREPARE TRANSACTION 'x'"), '0A000', 'PREPARE TRANSACTION is refused');

# --- resign ---

is($south->safe_psql('postgres', "SELECT zk_leader_resign('$path', '1 hour')"), 't', 'resign for an hour');
wait_until_leads($north);
ok(wait_for_line($north, 'north*'), 'for an hour: does not stand');
foreach (['2 hours', 'north*', 'replaces the pause'], ['0', 'north* south', 'ends the pause'], ['1 hour', 'north*', 'pauses again'])
{
	my ($pause, $line, $what) = @$_;
	my ($status, $out, $err) = $south->psql('postgres', "SELECT zk_leader_resign('$path', '$pause')");
	is("$out$err", 'f', "resign for $pause: $what");
	ok(wait_for_line($north, $line), "resign for $pause: $line");
}
my ($status, $out, $err) = $south->psql('postgres', "SELECT zk_leader_resign('/leaders/none')");
is($out, 'f', 'a server that does not stand cannot resign');
like($err, qr/WARNING:  this server does not stand/, 'and is told so');
is($north->errcode("SELECT zk_leader_resign('$path', '-1 s')"), '22023', 'a negative pause');
$north->safe_psql('postgres', 'CREATE ROLE nobody');
is($north->errcode("SET ROLE nobody; SELECT zk_leader_resign('$path')"), '42501', 'a plain role may not resign');
is($north->errcode("SET ROLE nobody; SELECT zk_is_leader('$path')"), '', 'every role may call zk_is_leader');
is($north->safe_psql('postgres', "SET ROLE nobody; SELECT leads FROM zk_leaders"), 't', 'and read zk_leaders');

# --- the setting ---

$south->set('zklock.leader_of', '/leaders/reports');
ok(wait_for_line($south, 'south*', '/leaders/reports'), 'reload: stands for another path');
$south->set('zklock.leader_of', "$path ,\t/leaders/reports, $path,");
ok(wait_for_line($south, 'north* south'), 'reload: and for the first again');
is(line($south, '/leaders/reports'), 'south*', 'reload: what stays is not disturbed');
$north->set('zklock.leader_of', '');
wait_until_leads($south);
is(leads($north), 'f', 'removed from the setting: leads no longer');
foreach (["$path,relative", 'The path'], ["$path,,/x", 'A path is empty'], [ join(',', map { "/x/$_" } 1 .. 65), 'more than 64' ])
{
	my ($value, $detail) = @$_;
	($status, $out, $err) = $north->psql('postgres', "ALTER SYSTEM SET zklock.leader_of = '$value'");
	like($err, qr/invalid value for parameter "zklock.leader_of".*DETAIL:  .*/s, "invalid: $detail");
}
$north->set('zklock.leader_of', $path);
ok(wait_for_line($north, 'south* north'), 'put back: stands again');

# --- what ends ---

# The worker ends: that changes nothing.
my $token = $south->safe_psql('postgres', "SELECT token FROM zk_locks WHERE path = '$path'");
my $worker = $south->worker_pid;
kill 'TERM', $worker;
$south->wait_until("SELECT worker_pid <> $worker FROM zk_status");
$south->wait_until_connected;
is(leads($south), 't', 'worker restarted: still leads');
is($south->safe_psql('postgres', "SELECT token FROM zk_locks WHERE path = '$path'"), $token, 'worker restarted: with the same token');

# The claims process ends: it stands again.
$south->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'zklock claims'});
wait_until_leads($north);
ok(wait_for_line($north, 'north* south'), 'claims process ended: the next one leads, and it stands again');

# With this timeout, where south leads and north stands behind; and so they do after it.
sub begin_sessions
{
	my ($timeout) = @_;
	foreach ([ $south, $north, 'north* south' ], [ $north, $south, 'south* north' ])
	{
		my ($node, $other, $line) = @$_;
		$node->set_session_timeout($zk, $timeout);
		ok(wait_for_line($other, $line), "sessions of $timeout: $line");
	}
	return;
}

# A clean stop frees the leadership at once, a crash when the session expires.
$south->configure('zklock.leader_of' => $path);
my $session = $north->status('session_id');
$north->stop('fast');
ok(!$zk->has_session($session), 'clean stop: the session is closed at once');
wait_until_leads($south);
like(slurp_file($north->logfile), qr/LOG:  this server no longer leads "$path"/, 'clean stop: the log says so');
$north->start;
ok(wait_for_line($south, 'south* north'), 'started again: stands behind');
begin_sessions('10s');
$south->kill9_all;
wait_until_leads($north);
pass('kill -9: the next one leads when the session has expired');
$south->start;
ok(wait_for_line($north, 'north* south'), 'kill -9: stands again');

# Silence: the leader knows that it does not lead any more before another server leads.
$worker = $north->worker_pid;
kill 'STOP', $worker;
wait_until_leads($south);
is(leads($north), 'f', 'in doubt: does not lead');
kill 'CONT', $worker;
ok(wait_for_line($north, 'south* north'), 'and back again: stands behind');
begin_sessions('30s');

# A backend dies of kill -9, and PostgreSQL starts all processes again: one of each.
my $backend = $south->backend;
kill 'KILL', $backend->pid;
eval { $backend->quit };
wait_until_leads($north);
ok(wait_for_line($north, 'north* south'), 'crash restart: stands again');
is($south->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'zklock claims'}), '1',
	'crash restart: with one claims process');
$north->safe_psql('postgres', "SELECT zk_leader_resign('$path')");
ok(wait_for_line($north, 'south* north'), 'and back');

# There is no room for the claims process beside the worker and PostgreSQL's own launcher.
my $full = ZklockNode->started('full', $zk, %settings, 'max_worker_processes' => 2);
like(slurp_file($full->logfile), qr/too many background workers.*HINT: .*max_worker_processes/s, 'no room for the claims process: the log says so');
my $refused = $full->backend;
like($refused->run(q{SELECT zk_claim_request('/x', '1 min')})->{err}, qr/55000: the claims process is not running\nHINT:.*max_worker_processes/, 'no room for the claims process: no claims');
is($refused->query(q{SELECT errors FROM zk_stat_errors() WHERE sqlstate = '55000'}), 1, 'which is counted');
$refused->quit;
is(leads($full), 'f', 'no room for the claims process: does not lead');
is($full->safe_psql('postgres', acquire('/x', '10 s')), 't', 'no room for the claims process: locks work');
$full->stop;

# --- a standby ---

my $standby = ZklockNode->standby('standby', $north);
$standby->wait_until_connected;
is(line($standby), 'south* north', 'a standby does not stand');
$standby->set('zklock.leader_on_standby', 'on');
ok(wait_for_line($standby, 'south* north standby'), 'unless it is told to');
$standby->set('zklock.leader_on_standby', 'off');
ok(wait_for_line($standby, 'south* north'), 'and not any more');
$standby->promote;
ok(wait_for_line($standby, 'south* north standby'), 'it stands when it is promoted');
$south->stop;
$north->stop;
wait_until_leads($standby);
pass('and leads in its turn');

# --- Curator ---

my $curator = InteropPeer->curator($zk);
my ($selector, $latch) = map { $curator->actor($_) } 'selector', 'latch';
$selector->send("acquire selector /zklock$path");
ok(wait_for_line($standby, 'standby* -'), 'LeaderSelector: stands behind');
$standby->safe_psql('postgres', "SELECT zk_leader_resign('$path')");
is($selector->answer, 't', 'LeaderSelector: leads in its turn');
is(leads($standby), 'f', 'LeaderSelector: alone');
ok(wait_for_line($standby, '-* standby'), 'LeaderSelector: the server stands behind it');
is($selector->query("release selector /zklock$path"), 't', 'LeaderSelector: is released');
wait_until_leads($standby);
pass('LeaderSelector: and followed by the server');

is($latch->query('acquire latch /zklock/leaders/latched'), 't', 'LeaderLatch: leads');
is($standby->errcode(try('/leaders/latched')), 'ZK003', 'LeaderLatch: another kind');
is($standby->errcode(q{SELECT zk_read_lock_acquire('/leaders/latched', '0')}), 'ZK003', 'LeaderLatch: of any');
$standby->set('zklock.leader_of', "$path,/leaders/latched");
$standby->wait_for_log(qr{this server cannot stand for the leadership of "/leaders/latched"});
is(leads($standby, '/leaders/latched'), 'f', 'LeaderLatch: the server does not lead');
is(leads($standby), 't', 'LeaderLatch: its other leaderships are not disturbed');
is($latch->query('release latch /zklock/leaders/latched'), 't', 'LeaderLatch: is closed');
wait_until_leads($standby, '/leaders/latched');
is(scalar(() = slurp_file($standby->logfile) =~ /cannot stand for the leadership/g), 1, 'LeaderLatch: told once');

# A path whose queue may not be read hides no others.
$zk->create('/zklock/closed', perms => 'cdwa');
$standby->set('zklock.leader_of', "$path,/closed");
wait_until_leads($standby);
is($standby->safe_psql('postgres', 'SELECT path, leads FROM zk_leaders ORDER BY path'), "/closed|\n$path|t", 'a path that may not be read: nulls');

# --- many ---

my @many = map { "/many/$_" } 1 .. 64;
my $all = "SELECT bool_and(zk_is_leader(p)) FROM unnest('{" . join(',', @many) . "}'::text[]) AS p";
$standby->set('zklock.leader_of', join(',', @many));
$standby->wait_until($all);
my $greedy = $standby->backend;
is($greedy->query("BEGIN; $all"), 't', 'leads all of 64 paths');
$standby->set('zklock.leader_of', '/many/65');
wait_until_leads($standby, '/many/65');
is($greedy->errcode(q{SELECT zk_is_leader('/many/65')}), '54000', 'a transaction does not rely on more');
$greedy->quit;

$standby->stop;
done_testing();
