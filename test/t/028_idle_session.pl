
# A ZooKeeper session that holds no lock writes nothing, and is neither in doubt nor a reason to
# wait when the next lock comes.  One that holds locks writes five times in a session timeout.

use strict;
use warnings;

use Time::HiRes qw(usleep);

use HoldingProxy;
use ZklockTest;

my $timeout = 8;
my $zk = ZooKeeper->new;
my $proxy = HoldingProxy->new($zk->hosts);
my %settings = (
	'zklock.session_timeout' => "${timeout}s",
	'zklock.connection_timeout' => '1min',
	'zklock.linger' => 0);
my $node = ZklockNode->started('a', undef, %settings, 'zklock.hosts' => $proxy->address);
my $judge = $node->backend;
my $user = $node->backend;

# What a first acquire costs, and how far safe until is ahead when it returns.  The worker sends a heartbeat
# when the reply to the create has not come within a period, as on a machine that stands still; "due" is how
# many of these there may have been.
$judge->query(q{
	CREATE TABLE t (v text);
	CREATE FUNCTION first(path text, OUT acquired boolean, OUT creates bigint, OUT heartbeats bigint, OUT ahead double precision, OUT due int)
	LANGUAGE plpgsql AS $$
	DECLARE
		s record;
		began timestamptz := clock_timestamp();
	BEGIN
		SELECT * INTO s FROM zk_stat;
		acquired := zk_lock_acquire(path, '1min');
		SELECT z.creates - s.creates, z.heartbeats - s.heartbeats INTO creates, heartbeats FROM zk_stat z;
		SELECT extract(epoch FROM safe_until - clock_timestamp()) / extract(epoch FROM session_timeout),
			floor(extract(epoch FROM clock_timestamp() - began) / extract(epoch FROM session_timeout / 20))
			INTO ahead, due FROM zk_status;
	END $$});

sub zxid { return hex(($zk->cmd('srvr') =~ /^Zxid: 0x(\w+)/m)[0]); }
sub seconds { my ($n) = @_; usleep(1e6 * $n); return; }
sub wait_until_idle { return $node->wait_until(q{SELECT state = 'idle' AND safe AND safe_until IS NULL FROM zk_status}); }
sub release_all { $user->query('SELECT zk_lock_release_all()'); return wait_until_idle(); }
sub stat_of { my ($what) = @_; return $judge->query("SELECT $what FROM zk_stat"); }
sub logged { my ($what, $at) = @_; return scalar(() = substr(slurp_file($node->logfile), $at) =~ /$what/g); }

# A create that is lost with its connection keeps its session from being idle for minutes,
# because it may still be carried out.
sub release_after
{
	my ($creates) = @_;
	return release_all() if $creates == 1;
	$user->query('SELECT zk_lock_release_all()');
	$node->wait_until('SELECT entries = 0 FROM zk_status');
	$node->expire_session($zk);
	return wait_until_idle();
}

# The function must be done before the session expires.  On a slow machine, the test may need another go.
sub in_time
{
	my ($what, $try) = @_;
	my $epoch;
	for (1 .. 5)
	{
		release_all();
		$epoch = $node->status('epoch');
		$try->();
		last if $node->status('epoch') == $epoch;
	}
	is($node->status('epoch'), $epoch, "$what: in the same session");
	return;
}

sub first_is_quick
{
	my ($what) = @_;
	my ($acquired, $creates, $heartbeats, $ahead, $due);

	# A sign that is due at the moment of the acquire is a heartbeat: try again at another moment.
	for my $try (1 .. 3)
	{
		($acquired, $creates, $heartbeats, $ahead, $due) = split /\|/, $user->query(q{SELECT * FROM first('/idle/one')});
		last if $heartbeats <= $due || $try == 3;
		release_all();
		seconds($timeout / 20 * $try / 3);
	}
	is("$acquired $creates", 't 1', "$what: the create is all that the first acquire needs");
	cmp_ok($heartbeats, '<=', $due, "$what: and no heartbeat, unless the reply is slow");
	cmp_ok($ahead, '>', 0.3, "$what: and proves that the session lives");
	is($user->errcode(q{INSERT INTO t VALUES ('idle')}), '', "$what: a transaction commits");
	return;
}

# --- idle ---

# Make the directory, so that the first acquire costs the create alone.
$user->query(q{SELECT zk_lock_acquire('/idle/one')});
release_all();

my ($moved, $heartbeats, $signs);
for (1 .. 3)	# sessions of other clients may end meanwhile
{
	($heartbeats, $signs, $moved) = (stat_of('heartbeats'), stat_of('signs'), zxid());
	seconds(2 * $timeout);
	($heartbeats, $signs, $moved) = (stat_of('heartbeats') - $heartbeats, stat_of('signs') - $signs, zxid() - $moved);
	last unless $moved;
}
is("$moved $heartbeats", '0 0', 'idle: nothing is written in two session timeouts');
cmp_ok($signs, '>', 20, 'idle: but the session shows that it lives');
is($node->status('state, safe, epoch, connects'), 'idle|t|1|1', 'idle: a state of its own');
is($judge->query('SELECT state, safe_until IS NULL FROM zk_sessions'), 'idle|t', 'idle: in zk_sessions, too');
my $at = -s $node->logfile;

# Tries, and waits that are too short, end as they do with a session that is not idle.
is($user->query(q{SELECT zk_lock_acquire('/idle/one', '0')}), 't', 'idle: a try');
release_all();
is($user->errcode(q{SELECT zk_lock_acquire('/idle/one', '1 ms')}), '', 'idle: a wait that is too short is no error');
release_all();

first_is_quick('idle');
is($node->status('state, safe'), 'connected|t', 'held: the session is proved to live');

# --- held ---

$heartbeats = stat_of('heartbeats');
my ($before, $least) = (zxid(), $timeout);
for (my $until = Time::HiRes::time() + 2 * $timeout; Time::HiRes::time() < $until; usleep(20_000))
{
	my $ahead = $judge->query('SELECT extract(epoch FROM safe_until - clock_timestamp()) FROM zk_status');
	$least = $ahead if $ahead < $least;
}
my $written = zxid() - $before;
$heartbeats = stat_of('heartbeats') - $heartbeats;
note sprintf 'held: %d heartbeats, %d writes in two session timeouts; safe until was ahead by %.2f s at least', $heartbeats, $written, $least;
cmp_ok($heartbeats, '>=', 6, 'held: some proofs');
cmp_ok($heartbeats, '<=', 20, 'held: but not many');
cmp_ok($written, '<=', 22, 'held: ZooKeeper sees no more');
cmp_ok($least, '>', 0, 'held: and never in doubt');
release_all();

sub nothing_in_doubt
{
	my ($when) = @_;
	is(stat_of('lost, doubt_time'), '0|0', "$when: nothing was lost, or in doubt");
	is(logged(qr/in doubt/, $at), 0, "$when: and the log says nothing of it");
	return;
}
nothing_in_doubt('at first');

# --- the worker stands still while the session is idle ---

my $worker = $node->worker_pid;
my $answer;
in_time('standing still', sub {
	kill 'STOP', $worker;
	$node->wait_until('SELECT NOT safe FROM zk_status');
	is($node->status('state'), 'connecting', 'standing still: seen, and no doubt');
	$user->send(q{SELECT * FROM first('/idle/one')});
	$node->wait_until(q{SELECT count(*) > 0 FROM zk_locks WHERE path = '/idle/one' AND claim = 'waiting'});
	kill 'CONT', $worker;
	$answer = $user->answer;
	like($answer, qr/^t\|/, 'standing still: an acquire goes on');
});
release_after((split /\|/, $answer)[1]);

# The create proved no more than the signs of life before the worker stood still.  So if the next proof
# was late, the lock was in doubt for a moment.
is(stat_of('lost'), 0, 'standing still: nothing was lost');
$judge->query('SELECT zk_stat_reset()');
$at = -s $node->logfile;

# --- the connection is cut while the session is idle ---

my $connects = $node->status('connects');
$proxy->cut;
$node->wait_until("SELECT connects > $connects FROM zk_status");
wait_until_idle();
first_is_quick('cut');
release_all();

# ... and a lock is wanted at once.
$proxy->cut;
$answer = $user->query(q{SELECT acquired, ahead > 0.3, creates FROM first('/idle/one')});
like($answer, qr/^t\|t\|/, 'cut, and at once: acquired');
is($user->errcode(q{INSERT INTO t VALUES ('cut')}), '', 'cut, and at once: a transaction commits');
release_after((split /\|/, $answer)[2]);

# The worker gives up a connection that is silent, and nothing is in doubt.
in_time('silent', sub {
	$connects = $node->status('connects');
	$proxy->hold('replies');
	$node->wait_until(q{SELECT state IN ('connecting', 'disconnected') AND NOT safe FROM zk_status});
	$proxy->pass;
	$node->wait_until("SELECT connects > $connects FROM zk_status");
});
wait_until_idle();
first_is_quick('silent');
release_all();

# --- the session expires while it is idle ---

my $session = $node->status('session_id');
$node->expire_session($zk);
isnt($node->status('session_id'), $session, 'expired: another session');
is($node->status('expirations > 0, tickets_lost'), 't|0', 'expired: no lock was lost');
wait_until_idle();
first_is_quick('expired');
release_all();
nothing_in_doubt('in the end');

# --- and just after the first acquire, unknown to the worker ---

$session = $node->status('session_id');
$worker = $node->worker_pid;
my $epoch = $node->status('epoch');
$user->query(q{BEGIN});
is($user->query(q{SELECT zk_xact_lock_acquire('/idle/one', '1min')}), 't', 'stale: granted on the proof of the create');
$user->query(q{INSERT INTO t VALUES ('stale')});
kill 'STOP', $worker;
$zk->wait_until(sub { !$zk->has_session($session) }, 'the session to expire');
is($node->status('state, epoch'), "in doubt|$epoch", 'stale: the worker does not know that the session has expired');
is($user->errcode('COMMIT'), 'ZK001', 'stale: but the commit is refused');
kill 'CONT', $worker;
$node->wait_until("SELECT epoch > $epoch AND safe FROM zk_status");
is($judge->query(q{SELECT count(*) FROM t WHERE v = 'stale'}), 0, 'stale: nothing is committed');

# --- a server that stands by ---

my $leader = ZklockNode->started('b', $zk, %settings, 'zklock.leader_of' => '/idle/leader');
$leader->wait_until(q{SELECT zk_is_leader('/idle/leader')});
is($leader->safe_psql('postgres', 'SELECT state, safe, safe_until > clock_timestamp() FROM zk_status'), 'connected|t|t',
	'leader: its session is not idle');

$node->configure('zklock.leader_of' => '/idle/leader');
$node->reload;
$node->wait_until(q{SELECT ephemeral_bytes > 0 FROM zk_status});
wait_until_idle();
pass('standby: a queued ticket of a standby is not proved');
is($node->safe_psql('postgres', q{SELECT zk_is_leader('/idle/leader')}), 'f', 'standby: it does not lead');
$leader->stop;
$node->wait_until(q{SELECT zk_is_leader('/idle/leader')});
is($node->status('state, safe'), 'connected|t', 'standby: it leads, and is proved to live');
is($judge->errcode(q{BEGIN; SELECT zk_is_leader('/idle/leader'); INSERT INTO t VALUES ('leads'); COMMIT}), '', 'standby: a transaction commits');

done_testing();
