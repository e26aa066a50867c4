
# Locks that end by themselves, and what becomes of a statement whose lock is lost.

use strict;
use warnings;

use ZklockTest qw(!acquire);

my $zk = ZooKeeper->new;
my %settings = (
	'zklock.session_timeout' => '20s',
	'zklock.connection_timeout' => '60s',
	'zklock.linger' => 0,
	'zklock.tenure' => '1h');
my $node_a = ZklockNode->started('a', $zk, %settings);
my $node_b = ZklockNode->started('b', $zk, %settings);
$node_a->safe_psql('postgres', 'CREATE TABLE t (v text)');
my ($a1, $a2, $b1, $b2) = map { $_->backend } $node_a, $node_a, $node_b, $node_b;

sub acquire { my ($path, $lease, $what) = @_; $what //= 'lock'; return "SELECT zk_${what}_acquire('$path'" . (defined $lease ? ", NULL, '$lease')" : ')'); }
sub xacquire { my ($path, $lease) = @_; return acquire($path, $lease, 'xact_lock'); }
sub insert { my ($value) = @_; return "INSERT INTO t VALUES ('$value')"; }
sub rows { return $node_a->safe_psql('postgres', 'SELECT v FROM t ORDER BY v'); }

# Another session looks: the holder's own statement might be the one that is cancelled.
sub wait_until_lost
{
	my ($node, $path) = @_;
	return $node->wait_until("SELECT count(*) > 0 FROM zk_locks WHERE path = '$path' AND claim = 'lost'");
}

sub wait_until_asleep
{
	my ($node, $backend) = @_;
	return $node->wait_until("SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE pid = " . $backend->pid);
}

sub is_over
{
	my ($result, $path, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($result->{errcode}, 'ZK002', $what);
	like($result->{err}, qr/lease time of lock "\Q$path\E" is over/, "$what: names the lock");
	like($result->{err}, qr/DETAIL:  It ended at 2\d{3}-/, "$what: and the time");
	return;
}

# --- the statement that runs is cancelled, and the other server has the lock ---

$a1->query(acquire('/sleep', '10s'));
my $token = $a1->query(token('/sleep'));
$b1->send(acquire('/sleep'));
$a1->send('SELECT pg_sleep(170)');
is_over($a1->result, '/sleep', 'the statement');
is($b1->answer, 't', 'the other server has the lock');
cmp_ok($b1->query(token('/sleep')), '>', $token, 'with a greater token');
is($a1->query(held('/sleep')), 'f', 'the former holder does not hold it any more');
is($a1->errcode(token('/sleep')), 'ZK002', 'no token');
is($a1->errcode('SELECT zk_lock_remaining($$/sleep$$)'), 'ZK002', 'nothing remains');
is($a1->errcode(acquire('/sleep')), 'ZK002', 'it has to be released first');
my $result = $a1->run(release('/sleep'));
is($result->{out}, 'f', 'the release says so');
like($result->{err}, qr/WARNING:  ZK002/, 'and warns');
is($b1->query(held('/sleep')), 't', 'and does not touch the new holder');
$b1->query(release('/sleep'));
is($a1->query(acquire('/sleep')), 't', 'then it can be acquired again');
is($a1->query('SELECT zk_lock_remaining($$/sleep$$) IS NULL'), 't', 'without a lease time');
$a1->query(release('/sleep'));
$zk->wait_for_children('/zklock/sleep', 0);

# --- idle, in a transaction and between two ---

$a1->query('BEGIN');
$a1->query('SET LOCAL zklock.on_lost = notice');
$a1->query(insert('idle'));
$a1->query(xacquire('/idle', '1s'));
wait_until_lost($node_a, '/idle');
is($b1->query(acquire('/idle')), 't', 'idle in transaction: the other server has the lock');
is($a1->query('SELECT 1'), '1', 'idle in transaction, only told: the next statement is not disturbed');
is_over($a1->run('COMMIT'), '/idle', 'idle in transaction: COMMIT');
$b1->query(release('/idle'));

$a1->query(acquire('/idle', '1s'));
wait_until_lost($node_a, '/idle');
is($b1->query(acquire('/idle')), 't', 'idle: the other server has the lock');
like($a1->run('SELECT 1')->{err}, qr/WARNING:  ZK002: lease time/, 'idle: a transaction that reads is warned');
is_over($a1->run(insert('idle')), '/idle', 'idle: one that writes');
is($a1->run(release('/idle'))->{out}, 'f', 'idle: released');
is($a1->run(insert('fine'))->{err}, '', 'idle: then it can write again');
$b1->query(release('/idle'));
is(rows(), 'fine', 'nothing else is there');

# A cancel or a timeout that comes later is not reported as the end of the lease time.
$a1->query(acquire('/later', '1s'));
wait_until_lost($node_a, '/later');
$a1->run("SET statement_timeout = '50ms'");
is($a1->errcode('SELECT pg_sleep(170)'), '57014', 'a timeout after the end of a lease');
$a1->run('RESET statement_timeout');
$a1->run(release('/later'));

# --- exception blocks that go on all the same ---

$result = $a1->run(q{DO $$
	BEGIN
		PERFORM zk_xact_lock_acquire('/block', NULL, '1s');
		INSERT INTO t VALUES ('block');
		BEGIN
			PERFORM pg_sleep(170);
		EXCEPTION WHEN OTHERS THEN
			RAISE NOTICE 'caught %', SQLSTATE;
		END;
	END $$});
like($result->{err}, qr/caught ZK002/, 'an exception block can catch it');
is_over($result, '/block', 'but not commit');
is($a1->errcode(q{DO $$
	BEGIN
		PERFORM zk_xact_lock_acquire('/block', NULL, '1s');
		PERFORM pg_sleep(170);
	END $$}), 'ZK002', 'without one');

# PL/pgSQL itself notices the cancel.  What the block says then is its own, also with the SQLSTATE of a cancel.
$result = $a1->run(q{DO $$
	DECLARE n bigint := 0;
	BEGIN
		PERFORM zk_xact_lock_acquire('/block', NULL, '1s');
		BEGIN
			LOOP n := n + 1; END LOOP;
		EXCEPTION WHEN OTHERS THEN
			RAISE NOTICE 'caught %', SQLSTATE;
			RAISE EXCEPTION 'mine' USING ERRCODE = '57014';
		END;
	END $$});
like($result->{err}, qr/caught ZK002/, 'a cancel that PL/pgSQL notices is caught by WHEN OTHERS');
like($result->{err}, qr/ERROR:  57014: mine/, 'and explains no later error');
is(rows(), 'fine', 'nothing is there');

# --- user cancel and statement_timeout are what they are ---

$a1->query(acquire('/cancel', '1h'));
$a1->send('SELECT pg_sleep(170)');
wait_until_asleep($node_a, $a1);
$node_a->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $a1->pid . ')');
$result = $a1->result;
is($result->{errcode}, '57014', 'a user cancels');
like($result->{err}, qr/due to user request/, 'as the message says');
$a1->query(release('/cancel'));

# --- the lock is lost otherwise: ZK001, with the reason ---

$_->query(acquire('/killed')) foreach $a1;
$a1->query(acquire('/killed2'));
$a1->send('SELECT pg_sleep(170)');
wait_until_asleep($node_a, $a1);
$zk->delete("/zklock/killed2/$_") foreach @{ $zk->children('/zklock/killed2') };
$result = $a1->result;
is($result->{errcode}, 'ZK001', 'one of two locks is deleted: the statement is cancelled');
like($result->{err}, qr{lock "/killed2" was lost}, 'the error names it');
like($result->{err}, qr/Another client has deleted its znode/, 'and the reason');
is($a1->query(held('/killed')), 't', 'the other one is held');
$a1->run(release('/killed2'));
$a1->query('BEGIN');
$a1->query(insert('killed'));
$a1->send('SELECT pg_sleep(170)');
wait_until_asleep($node_a, $a1);
$node_a->expire_session($zk, by_hand => 1);
$result = $a1->result;
is($result->{errcode}, 'ZK001', 'the session expires: the statement is cancelled');
like($result->{err}, qr{lock "/killed" was lost.*session that held it has expired}s, 'with path and reason');
cmp_ok($result->{seconds}, '<', 60, 'long before it would have ended');
$a1->query('ROLLBACK');
is($a1->run('SELECT zk_lock_release_all()')->{out}, '1', 'released');

# --- the worker stands still past the end ---

# A claim of another lock was seen to be good before: that must not do.
$a2->query(acquire('/good'));
$a1->query(acquire('/good2'));
$a1->query('BEGIN');
$a1->query(insert('stopped'));
my $worker = $node_a->worker_pid;
$a1->query(xacquire('/stopped', '2s'));
kill 'STOP', $worker;
$a1->wait_until(q{SELECT NOT zk_lock_is_held('/stopped')});
is($a1->query(held('/good2')), 't', 'the worker stands still, and the session is still safe');
is($a1->errcode(token('/stopped')), 'ZK002', 'the lease ends on the clock of the backend');
$a1->query('ROLLBACK');
$a1->query('BEGIN');
$a1->query(insert('stopped'));
kill 'CONT', $worker;
$a1->query(xacquire('/stopped2', '2s'));
kill 'STOP', $worker;
$a1->wait_until(q{SELECT clock_timestamp() > lease_ends FROM zk_locks WHERE path = '/stopped2'});
$result = $a1->run('COMMIT');
kill 'CONT', $worker;
is_over($result, '/stopped2', 'COMMIT is refused without the worker');
is(rows(), 'fine', 'nothing is there');
$_->query('SELECT zk_lock_release_all()') foreach $a1, $a2;

# --- readers ---

$a1->query(acquire('/readers', '500ms', 'read_lock'));
$a2->query(acquire('/readers', undef, 'read_lock'));
$b1->send(acquire('/readers', undef, 'write_lock'));
wait_until_lost($node_a, '/readers');
is($a1->query(held('/readers')), 'f', 'the lease of one of two readers ends');
is($a2->query(held('/readers')), 't', 'the other one goes on');
$node_b->wait_for_ticket('/readers', 'queued');
ok(!$b1->is_done, 'and keeps a writer waiting');
$a2->query('SELECT zk_read_lock_release($$/readers$$)');
is($b1->answer, 't', 'then the writer has the lock');
$_->run('SELECT zk_lock_release_all()') foreach $a1, $b1;

# A writer that reads as well loses both at once.
$a1->query(acquire('/both', '10s', 'write_lock'));
$a1->query(acquire('/both', undef, 'read_lock'));
$b1->send(acquire('/both', undef, 'write_lock'));
is($b1->answer, 't', 'the lease of a writer that reads ends');
is($a1->query(held('/both')), 'f', 'both are over');
$_->run('SELECT zk_lock_release_all()') foreach $a1, $b1;

# --- local waiters: handed on within the server ---

$a1->query(acquire('/local', '10s'));
$token = $a1->query(token('/local'));
$a2->send(acquire('/local'));
$node_a->wait_for_waiter('/local', 1);
my $tickets = $node_a->status('tickets');
$a1->send('SELECT pg_sleep(170)');
is($a1->result->{errcode}, 'ZK002', 'a lease ends while others wait in the server');
is($a2->answer, 't', 'the next one has the lock');
cmp_ok($a2->query(token('/local')), '>', $token, 'with a greater token');
$_->run('SELECT zk_lock_release_all()') foreach $a1, $a2;

# --- a lease time longer than the session timeout, and none at all ---

$node_a->set_session_timeout($zk, '5s');
is($node_a->status("session_timeout <= '5s'"), 't', 'a short session');
$a1->query(acquire('/long', '1h'));
$a2->query(acquire('/long2'));
$b1->send(acquire('/long'));
$b2->send(acquire('/long2'));
$zk->wait_for_children("/zklock/$_", 2) foreach 'long', 'long2';
my $epoch = $node_a->status('epoch');
$node_a->wait_until(q{SELECT bool_and(clock_timestamp() > claim_since + 3 * interval '5s') FROM zk_locks});
ok(!$_->is_done, 'after several session timeouts the other server has not got it') foreach $b1, $b2;
$node_a->wait_until(q{SELECT safe_until > clock_timestamp() + interval '1 s' FROM zk_status});
is($a1->query(held('/long')), 't', 'with a long lease time it is held');
is($a1->query(q{SELECT zk_lock_remaining('/long') BETWEEN '50 min' AND '1 h'}), 't', 'and much remains');
is($a2->query(held('/long2')), 't', 'without one, too');
is($node_a->status('epoch'), $epoch, 'in the same session');
$_->query('SELECT zk_lock_release_all()') foreach $a1, $a2;
is($_->answer, 't', 'released') foreach $b1, $b2;
$_->query('SELECT zk_lock_release_all()') foreach $b1, $b2;

# --- races: the end of the lease with release, and with commit ---

# A cancel that comes before a statement has begun to run cannot give the reason.
$a1->query('SET client_min_messages = error');
my (%answers, @refused);
foreach my $i (1 .. 40)
{
	# On a slow machine, the lease may be over before acquire returns.
	$result = $a1->run(acquire('/race', '100ms'));
	push @refused, $result->{errcode} unless $result->{out} eq 't';
	$result = $a1->run("SELECT pg_sleep(0.0975 + 0.0005 * ($i % 10)) IS NULL; " . release('/race'));
	$answers{ $result->{errcode} || (split /\n/, $result->{out})[-1] }++;
	$a1->run('SELECT zk_lock_release_all()');
}
is(join(' ', grep { !/^(ZK002|57014)$/ } @refused), '', 'an acquire is refused only because the time is over');
is(join(' ', grep { !/^(t|f|ZK002|57014)$/ } sort keys %answers), '', 'a release that races with the end is t, f or cancelled');
$result = $a1->run(q{DO $$
	BEGIN
		FOR i IN 1 .. 40 LOOP
			BEGIN
				PERFORM zk_lock_acquire('/race', NULL, '100ms');
				PERFORM pg_sleep(0.0975 + 0.0005 * (i % 10));
				PERFORM zk_lock_release('/race');
			EXCEPTION WHEN SQLSTATE 'ZK002' THEN
				PERFORM zk_lock_release_all();
			END;
		END LOOP;
	END $$});
like($result->{errcode}, qr/^(|ZK002)$/, 'a running statement always gets the reason');
$a1->run('SELECT zk_lock_release_all()');
$node_a->wait_until_clean('/race');

# Rows are numbered under the lock, so what is committed is in the order of tokens.
$node_a->safe_psql('postgres', q{
	CREATE TABLE committed (id serial, token bigint)});
$_->query('SET zklock.commit_margin = 0') foreach $a1, $a2;
my ($refused, $committed, @wrong) = (0, 0);
foreach my $i (1 .. 40)
{
	foreach my $backend ($a1, $a2)
	{
		# in one message, because between two messages the session would be idle in a transaction
		$backend->send('BEGIN\; ' . xacquire('/commits', '100ms')
			  . q{\; INSERT INTO committed (token) SELECT token FROM zk_locks WHERE path = '/commits' AND pid = pg_backend_pid()\;}
			  . " SELECT pg_sleep(0.08 + 0.0025 * ($i % 10)) IS NULL\\; COMMIT");
	}
	foreach my $backend ($a1, $a2)
	{
		my $code = $backend->result->{errcode};
		$code eq '' ? $committed++ : $refused++;
		push @wrong, $code unless $code =~ /^(|ZK002|57014)$/;
	}
	$_->run('ROLLBACK') foreach $a1, $a2;
}
is("@wrong", '', 'what is refused is refused for the lease time');
is($node_a->safe_psql('postgres', 'SELECT count(*) FROM committed'), $committed, 'what was refused is not there');
cmp_ok($_->[0], '>', 0, "some were $_->[1]") foreach [ $committed, 'committed' ], [ $refused, 'refused' ];
is($node_a->safe_psql('postgres', 'SELECT count(*) FROM (SELECT token > lag(token) OVER (ORDER BY id) AS grows FROM committed) AS c WHERE NOT grows'),
	'0', 'what was committed is in the order of tokens');
$node_a->wait_until_clean('/commits');

$_->quit foreach $a1, $a2, $b1, $b2;
foreach my $node ($node_a, $node_b)
{
	$node->wait_until(q{SELECT count(*) = 0 FROM zk_locks});
	$node->stop;
	is(() = slurp_file($node->logfile) =~ /(?:PANIC|TRAP|terminated by signal|you don't own)/g, 0, $node->name . ': a quiet log');
}
is_deeply([ grep { /[-_]\d{10}$/ } @{ $zk->tree('/zklock') } ], [], 'nothing is left in the end');

done_testing();
