
# Claims that belong to no session: zk_claim_request, zk_claim_wait, zk_xact_claim_use, zk_claim_renew,
# zk_claim_release, zk_claims.

use strict;
use warnings;

use ZklockTest;

my $zk = ZooKeeper->new;
my %settings = ('zklock.session_timeout' => '10s', 'zklock.linger' => 0, 'zklock.max_locks' => 64, 'max_wal_senders' => 2, 'wal_level' => 'replica');
my $north = ZklockNode->started('north', $zk, %settings);
my $south = ZklockNode->started('south', $zk, %settings);
my ($n, $m, $s) = ($north->backend, $north->backend, $south->backend);
$n->query('CREATE TABLE t (v text)');

# For an hour, so that no claim ends by itself on a machine that is slow.
sub request { my ($backend, $path, $time) = @_; return $backend->query(sprintf q{SELECT zk_claim_request('%s', '%s')}, $path, $time // '1 h'); }
sub call { my ($backend, $function, $claim, @more) = @_; return $backend->query("SELECT $function('" . join("', '", $claim, @more) . q{')}); }
sub error_of { my ($backend, $function, $claim, @more) = @_; return $backend->run("SELECT $function('" . join("', '", $claim, @more) . q{')}); }
sub code_of { return error_of(@_)->{errcode}; }
sub wait_for { return call($_[0], 'zk_claim_wait', $_[1], $_[2] // '1 min'); }
sub state_of { my ($claim) = @_; return $n->query("SELECT coalesce((SELECT state FROM zk_claims WHERE claim = '$claim'), 'none')"); }
sub wait_until_state { my ($claim, $state) = @_; return $zk->wait_until(sub { state_of($claim) eq $state }, "$claim to be $state"); }
sub owner_pid { return $n->query(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'zklock claims'}); }
sub claims_of { my ($node) = @_; return $node->safe_psql('postgres', 'SELECT count(*) FROM zk_locks WHERE claim IS NOT NULL'); }

# --- the life of a claim ---

my $owner = owner_pid();
like($owner, qr/^\d+$/, 'the claims process runs before the first claim');
my $c = request($n, '/a');
like($c, qr{^north/\d+/\d+$}, 'its name begins with that of the server');
is(wait_for($m, $c), 't', 'any session can wait for it');
is($m->query(q{SELECT path, state, database, role = current_user, lease_ends - since < '61 min', token > 0, waiting_pid FROM zk_claims}),
	'/a|held|postgres|t|t|t|', 'zk_claims shows it');
is($n->query('SELECT claim, pid = ' . owner_pid() . q{, session_count, xact_count FROM zk_locks WHERE path = '/a'}), 'held|t|0|0', 'zk_locks shows it as one of the claims process');
is($n->query(q{SELECT holds, pid = } . owner_pid() . q{, role = current_user FROM zk_lock_queue('/a')}), 't|t|t', 'and so does the queue');
is($s->query(q{SELECT zk_lock_acquire('/a', '0')}), 'f', 'another server cannot have the lock');
is($n->query(q{SELECT zk_lock_acquire('/a', '0')}), 'f', 'nor can a session of this one');

$n->query('BEGIN');
my $token = call($n, 'zk_xact_claim_use', $c);
is($n->query(q{SELECT zk_lock_token('/a') || ' ' || zk_lock_is_held('/a') || ' ' || (zk_lock_remaining('/a') <= '1 h')}), "$token true true", 'a transaction that uses it holds the lock');
is(call($n, 'zk_xact_claim_use', $c), $token, 'it may use it once more');
is(call($m, 'zk_xact_claim_use', $c), $token, 'so may another transaction');
is($n->query(q{SELECT string_agg(xact_count::text, ' ' ORDER BY xact_count) FROM zk_locks WHERE path = '/a'}), '0 2', 'zk_locks shows the use');
$n->query(q{INSERT INTO t VALUES ('used')});
is($n->errcode('COMMIT'), '', 'it commits');
is($n->query('SELECT count(*) FROM t'), '1', 'and its work is there');
is($n->query(q{SELECT zk_lock_is_held('/a')}), 'f', 'after that it holds nothing');
is(wait_for($n, $c, '0'), 't', 'and the claim is still there');

is(call($m, 'zk_claim_renew', $c, '2 h'), 't', 'renewed');
is($m->query(q{SELECT lease_ends > clock_timestamp() + interval '1 h' FROM zk_claims}), 't', 'zk_claims shows it');
is(call($m, 'zk_claim_release', $c), 't', 'released');
$zk->wait_for_children('/zklock/a', 0);
is(state_of($c), 'none', 'it is gone');
is(call($n, 'zk_claim_release', $c) . call($n, 'zk_claim_renew', $c, '1 min'), 'ff', 'released and renewed again: it had ended');
is(code_of($n, 'zk_claim_wait', $c) . code_of($n, 'zk_xact_claim_use', $c), 'ZK001ZK001', 'waited for and used: an error');
like(error_of($n, 'zk_claim_wait', $c)->{err}, qr/claim "\Q$c\E" has ended/, 'which names the claim');
cmp_ok($n->query(q{BEGIN; SELECT zk_xact_lock_acquire('/a'); SELECT zk_lock_token('/a'); COMMIT}) =~ s/\D*//r, '>', $token, 'the next token is greater');

# --- waiting ---

# Claims of both servers and sessions, in the order in which they came.
$s->query(q{SELECT zk_lock_acquire('/w')});
my @claims = map { request($n, '/w') } 1 .. 3;
is(wait_for($n, $claims[0], '10 ms'), 'f', 'not within the time');
is(state_of($claims[0]), 'waiting', 'it waits on');
is(code_of($n, 'zk_xact_claim_use', $claims[0]), '55000', 'it cannot be used');
$n->send("SELECT zk_claim_wait('$claims[0]')");
$zk->wait_until(sub { $m->query(qq{SELECT waiting_pid FROM zk_claims WHERE claim = '$claims[0]'}) eq $n->pid }, 'the wait to show');
is($m->query('SELECT wait_event FROM pg_stat_activity WHERE pid = ' . $n->pid) =~ /^(ZklockClaim|Extension)$/, 1, 'as a wait event, too');
is(code_of($m, 'zk_claim_wait', $claims[0]), '55006', 'only one session at a time waits for a claim');
is($m->query('SELECT path, holds, server, pid FROM zk_blockers(' . $n->pid . ')'), '/w|t|south|' . $s->pid, 'zk_blockers shows for whom the session waits');
$s->query(q{SELECT zk_lock_release('/w')});
is($n->result->{out}, 't', 'the wait ends when the lock is free');
my $third = $north->backend;
$third->send(q{SELECT zk_lock_acquire('/w')});
$north->wait_for_waiter('/w', 3);
is(wait_for($m, $claims[1], '10 ms'), 'f', 'the second one waits for the first');
is($m->query('SELECT count(*) FROM zk_blockers(' . $third->pid . ')'), '3', 'zk_blockers shows the claims before a session');
is(call($m, 'zk_claim_release', $claims[0]), 't', 'released');
is(wait_for($m, $claims[1]), 't', 'then it is the second one');
is(call($m, 'zk_claim_release', $claims[2]), 't', 'the third one is released while it waits');
is(call($m, 'zk_claim_release', $claims[1]), 't', 'released');
is($third->result->{out}, 't', 'then it is the session');
$c = request($n, '/w');
is(wait_for($n, $c, '10 ms'), 'f', 'a claim waits for a session of its server');
$third->query(q{SELECT zk_lock_release('/w')});
is(wait_for($n, $c), 't', 'and gets the lock');
call($n, 'zk_claim_release', $c);

# Cancelled, terminated, timed out: the claim waits on.
$s->query(q{SELECT zk_lock_acquire('/w')});
$c = request($n, '/w');
$m->send("SELECT zk_claim_wait('$c')");
$zk->wait_until(sub { $n->query('SELECT waiting_pid FROM zk_claims') eq $m->pid }, 'the wait to show');
$n->query('SELECT pg_cancel_backend(' . $m->pid . ')');
is($m->result->{errcode}, '57014', 'cancelled');
is($n->query('SELECT waiting_pid IS NULL FROM zk_claims'), 't', 'no session waits');
$third->send("SELECT zk_claim_wait('$c')");
$zk->wait_until(sub { $n->query('SELECT waiting_pid FROM zk_claims') eq $third->pid }, 'the wait to show');
$third->kill_client;
$n->query('SELECT pg_terminate_backend(' . $third->pid . ', 60000)');
is(wait_for($n, $c, '0'), 'f', 'terminated: another session can wait');
$n->query(q{SET lock_timeout = '10 ms'});
is(code_of($n, 'zk_claim_wait', $c), '55P03', 'lock_timeout');
$n->query('RESET lock_timeout');
$s->query(q{SELECT zk_lock_release('/w')});
is(wait_for($n, $c), 't', 'then it is granted');
call($n, 'zk_claim_release', $c);

# --- lease time ---

# Not asked for: it ends.  Asked for: it waits on.
$s->query(q{SELECT zk_lock_acquire('/l')});
my $short = request($n, '/l', '100 ms');
my $long = request($n, '/l', '1 h');
wait_until_state($short, 'none');
is(code_of($n, 'zk_claim_wait', $short), 'ZK002', 'a claim that waits ends when it was not asked for');
is(state_of($long), 'waiting', 'the other one waits on');
call($n, 'zk_claim_renew', $long, '100 ms');
wait_until_state($long, 'none');
pass('renewed with a shorter time: it ends sooner');
$short = request($n, '/l', '3 s');
$m->send("SELECT zk_claim_wait('$short')");
$n->query('SELECT pg_sleep(3.5)');
is(state_of($short), 'waiting', 'a claim does not end while a session waits for it');
$s->query(q{SELECT zk_lock_release('/l')});
is($m->result->{out}, 't', 'and is granted');
wait_until_state($short, 'none');
$zk->wait_for_children('/zklock/l', 0);
like(error_of($n, 'zk_claim_wait', $short)->{err}, qr{ZK002: lease time of lock "/l" is over.*Request another claim}s, 'held: it ends with its lease time');

# No lease time is so short that a process would have to look again and again.
is($n->errcode(q{SELECT zk_claim_request('/l', '99 ms')}) . code_of($n, 'zk_claim_renew', $short, '1 us'), '2202322023', 'too short');
$s->query(q{SELECT zk_lock_acquire('/l')});
$n->query(q{SELECT zk_claim_request('/l', make_interval(secs => 1 + i * 0.01)) FROM generate_series(1, 30) AS i});
cmp_ok(2 * ZklockNode::wakeups_of($owner, 2), '<', 20, 'claims that end one after another: no look for each of them');
$n->wait_until('SELECT count(*) = 0 FROM zk_claims');
$s->query(q{SELECT zk_lock_release('/l')});

# A transaction that uses it is cancelled, or refused.
$short = request($n, '/l', '3 s');
wait_for($n, $short);
$n->query('BEGIN');
call($n, 'zk_xact_claim_use', $short);
is(error_of($n, 'pg_sleep', '60')->{errcode}, 'ZK002', 'zklock.on_lost cancels a statement of a transaction that uses it');
$n->query('ROLLBACK');
$n->query(q{SET zklock.on_lost = 'notice'});
$short = request($n, '/l', '3 s');
wait_for($n, $short);
$n->query('BEGIN');
call($n, 'zk_xact_claim_use', $short);
$n->query(q{INSERT INTO t VALUES ('late')});
$m->wait_until("SELECT NOT EXISTS (SELECT FROM zk_claims WHERE claim = '$short')");
$zk->wait_for_children('/zklock/l', 0);
pass('the lock goes although a transaction uses it and is idle');
like($n->run('COMMIT')->{err}, qr{ZK002: lease time of lock "/l" is over.*Request another claim}s, 'whose commit is refused');
$n->query('RESET zklock.on_lost');

# Renewed while it is used: the transaction has more time as well.
$short = request($n, '/l', '5 s');
wait_for($n, $short);
$n->query('BEGIN');
call($n, 'zk_xact_claim_use', $short);
is(call($m, 'zk_claim_renew', $short, '1 h'), 't', 'renewed while it is used');
is($n->query(q{SELECT zk_lock_remaining('/l') > '1 min'}), 't', 'the transaction has more time');
is(call($m, 'zk_claim_release', $short), 't', 'released while it is used');
is(code_of($m, 'zk_xact_claim_use', $short), 'ZK001', 'no other transaction can use it');
is($s->run_again(q{SELECT zk_lock_acquire('/l', '100 ms')})->{out}, 'f', 'the lock stays until the transaction ends');
my $next = request($m, '/l');
is(wait_for($m, $next, '10 ms'), 'f', 'also for the next claim');
$n->query(q{INSERT INTO t VALUES ('released')});
is($n->errcode('COMMIT'), '', 'it commits');
is(wait_for($m, $next), 't', 'then it is the next claim');
call($m, 'zk_claim_release', $next);

# A lease time of the transaction's own does not outlast the claim's.
$short = request($n, '/l', '2 s');
wait_for($n, $short);
$n->query('BEGIN');
call($n, 'zk_xact_claim_use', $short);
is($n->query(q{SELECT zk_xact_lock_acquire('/l', lease_time => '1 h'), zk_lock_remaining('/l') <= '2 s'}), 't|t', 'acquired as well, for an hour: it ends with the claim');
is(error_of($n, 'pg_sleep', '60')->{errcode}, 'ZK002', 'and does end');
$n->query('ROLLBACK');

# --- timers ---

# How often a process has slept; and whether that was, since an earlier moment, not more often than ten
# times a second.  Some other wake-ups are allowed.
sub slept { my ($pid) = @_; slurp_file("/proc/$pid/status") =~ /^voluntary_ctxt_switches:\s+(\d+)/m or die; return [ $1, time ]; }
sub sleeps_well
{
	my ($pid, $since, $what) = @_;
	my $now = slept($pid);
	my ($times, $seconds) = map { $now->[$_] - $since->[$_] } 0, 1;
	note "$what: $times times in $seconds s";
	return cmp_ok($times, '<=', 10 * ($seconds + 1) + 20, "$what: not more than ten times a second");
}

# 250 claims, of which each has to end at another moment, because it was not asked for.
$s->query(q{SELECT zk_lock_acquire('/t')});
my $since = slept(owner_pid());
$n->query(<<'END');
	DO $$ BEGIN FOR i IN 1 .. 250 LOOP
		PERFORM zk_claim_request('/t', '100 ms'), pg_sleep(0.008);
		-- if the claims process stands still, they would be too many
		WHILE (SELECT count(*) FROM zk_claims) > 20 LOOP PERFORM pg_sleep(0.01); END LOOP;
	END LOOP; END $$
END
sleeps_well(owner_pid(), $since, 'the claims process, while claims end');
$n->wait_until(q{SELECT count(*) = 0 FROM zk_claims WHERE path = '/t'});

# The shortest time, while a session waits.
$short = request($n, '/t', '100 ms');
$m->send("SELECT zk_claim_wait('$short')");
$zk->wait_until(sub { $n->query(qq{SELECT waiting_pid FROM zk_claims WHERE claim = '$short'}) eq $m->pid }, 'the wait to show');
$since = slept(owner_pid());
$n->query('SELECT pg_sleep(2)');
sleeps_well(owner_pid(), $since, 'the claims process, while a session waits');
$n->query('SELECT pg_cancel_backend(' . $m->pid . ')');
is($m->result->{errcode}, '57014', 'the wait is cancelled');
$s->query(q{SELECT zk_lock_release('/t')});

# A commit hangs, and the lease time is over.
$n->query('SET synchronous_commit = on');
$north->hang_commits;
$c = request($n, '/t', '3 s');
is(wait_for($n, $c), 't', 'a claim for three seconds');
$n->query('BEGIN');
call($n, 'zk_xact_claim_use', $c);
$n->query(q{INSERT INTO t VALUES ('hung')});
$n->send('COMMIT');
$m->wait_until("SELECT NOT EXISTS (SELECT FROM zk_claims WHERE claim = '$c') AND wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = " . $n->pid);
$since = slept($north->worker_pid);
$m->query('SELECT pg_sleep(2)');
sleeps_well($north->worker_pid, $since, 'the worker, while a commit hangs');
$south->wait_until_connected;
is($s->query(q{SELECT zk_lock_acquire('/t', '0')}), 'f', 'it keeps the lock for that commit');
$north->set('synchronous_standby_names', '');
is($n->result->{errcode}, '', 'which returns at last');
$n->query(q{RESET synchronous_commit; DELETE FROM t WHERE v = 'hung'});

# --- transactions ---

$c = request($n, '/x');
wait_for($n, $c);
$n->query('BEGIN; SAVEPOINT s');
call($n, 'zk_xact_claim_use', $c);
is($n->query(q{ROLLBACK TO s; SELECT zk_lock_is_held('/x')}), 'f', 'rolled back to a savepoint: not used');
call($n, 'zk_xact_claim_use', $c);
is($n->query(q{RELEASE s; SELECT zk_lock_is_held('/x')}), 't', 'used in a savepoint that is released');
is($n->query(q{SELECT zk_xact_lock_acquire('/x')}), 't', 'the lock can be acquired at transaction level');
is($n->errcode(q{SELECT zk_lock_acquire('/x')}), '55006', 'but not at session level');
$n->query('ROLLBACK');
$n->query('BEGIN');
call($n, 'zk_xact_claim_use', $c);
is($n->errcode(q{SELECT zk_xact_run_once('/x')}), '55006', 'no job is run under a use: another use would run it, too');
$n->query('ROLLBACK');
$n->query('BEGIN');
call($n, 'zk_xact_claim_use', $c);
is($n->errcode(q{PREPARE TRANSACTION 'p'}), '0A000', 'no PREPARE TRANSACTION');
$n->query('ROLLBACK');
is(claims_of($north), '1', 'only the claim is left');

# Lost: by force, and by expiry.
$n->query('BEGIN');
call($n, 'zk_xact_claim_use', $c);
$n->query(q{INSERT INTO t VALUES ('forced')});
$n->send('SELECT pg_sleep(60)');
$north->wait_until("SELECT state = 'active' AND query ~ 'pg_sleep' FROM pg_stat_activity WHERE pid = " . $n->pid);
is($s->query(q{SELECT zk_lock_force_release('/x')}), '1', 'released by force');
is($n->result->{errcode}, 'ZK001', 'the transaction that uses it is cancelled');
$n->query('ROLLBACK');
like(error_of($m, 'zk_claim_wait', $c)->{err}, qr{ZK001: lock "/x" was lost.*deleted its znode.*Request another claim}s, 'the claim is lost');
$c = request($n, '/x');
wait_for($n, $c);
$s->query(q{SELECT zk_lock_acquire('/y')});
my $waits = request($n, '/y');
$n->query('BEGIN');
call($n, 'zk_xact_claim_use', $c);
$n->query(q{INSERT INTO t VALUES ('expired')});
$north->expire_session($zk);
is($n->errcode('COMMIT') =~ /^(ZK001|57P01|)$/ ? 'refused' : 'not', 'refused', 'expired: not committed');
$n = $north->backend if !defined eval { $n->query('SELECT 1') };
is(code_of($m, 'zk_claim_wait', $c), 'ZK001', 'expired: the claim is lost');
$s->query(q{SELECT zk_lock_release('/y')});
is(wait_for($m, $waits), 't', 'a claim that waits goes on in the next session');
call($m, 'zk_claim_release', $waits);
is($m->query(q{SELECT string_agg(v, ' ' ORDER BY v) FROM t}), 'released used', 'what was committed');

# --- bad input ---

my $number = $c =~ s{.*/}{}r;
my ($stem) = $c =~ m{(.*/)};
is($n->errcode('SELECT zk_claim_wait(NULL)'), '22023', 'null');
is($n->errcode(q{SELECT zk_claim_request('/a', NULL)}), '22023', 'a null lease time');
is($n->errcode(q{SELECT zk_claim_request(NULL, '1 s')}), '22023', 'a null path');
is($n->errcode(q{SELECT zk_claim_request('a', '1 s')}), '22023', 'an invalid path');
is($n->errcode(qq{SELECT zk_claim_request('/a', '$_')}), '22023', "lease time $_") foreach '0', '-1 s', '1 microsecond', '99.999 ms', '1 day 1 second';
is(code_of($n, 'zk_claim_renew', $c, $_), '22023', "renewed for $_") foreach '0', '1 microsecond', '99.999 ms';
foreach my $function (qw(zk_claim_wait zk_claim_renew zk_claim_release zk_xact_claim_use))
{
	is(code_of($n, $function, $_, $function eq 'zk_claim_renew' ? '1 s' : ()), '22P02', "$function: \"$_\"") foreach 'nonsense', " $c";
}
is(code_of($n, 'zk_claim_wait', $_), '22P02', "no name: \"$_\"") foreach '', '/', '//', $stem, "$c ", "x$c", "$stem $number", "$stem+$number", "${stem}0$number", $stem . '18446744073709551616', "x$stem/$number/";
is(code_of($n, 'zk_claim_wait', $_), '42704', "no claim: $_") foreach $stem . '0', $stem . '1', $stem . ($number + 6400), $stem . '18446744073709551615';
like(error_of($s, 'zk_claim_wait', $c)->{err}, qr{42704: there is no claim "\Q$c\E" on this server.*server "north"}s, 'a claim of another server, which is named');
$c = request($n, '/a');
$n->query('CREATE ROLE one LOGIN; CREATE ROLE two LOGIN; GRANT CREATE ON SCHEMA public TO one');
$n->query('SET ROLE one');
is(code_of($n, $_, $c, $_ eq 'zk_claim_renew' ? '1 s' : ()), '42501', "$_: another role's claim") foreach qw(zk_claim_wait zk_claim_renew zk_claim_release zk_xact_claim_use);
my $ones = request($n, '/one');
is($n->query('SELECT since IS NULL FROM zk_claims ORDER BY path'), "t\nf", 'zk_claims hides what other roles do');
$n->query(q{RESET ROLE; SET zklock.session_level = off; SET zklock.allowed_paths = '/one'});
is($n->errcode(q{SELECT zk_claim_request('/two', '1 s')}) . code_of($n, 'zk_claim_wait', $c), '4250142501', 'zklock.allowed_paths holds');
is($n->query('SELECT path FROM zk_claims'), '/one', 'also for the view');
is(wait_for($n, $ones), 't', 'a superuser can use any claim');
is(request($n, '/one') =~ /north/, 1, 'zklock.session_level does not forbid it');
$n->query('RESET zklock.allowed_paths; RESET zklock.session_level');
is($n->errcode(q{SELECT zk_read_lock_acquire('/a', '0')}), 'ZK003', 'another kind of lock');
is($n->query(q{SELECT count(zk_claim_release(claim)) FROM zk_claims}), '3', 'all are released');

# Slots are used again, and an old name means no other claim.
my @old = map { my $old = request($n, '/again'); call($n, 'zk_claim_release', $old); $old } 1 .. 100;
is(call($n, 'zk_claim_release', $old[0]), 'f', 'a name of long ago');
is(code_of($n, 'zk_claim_wait', $old[0]), 'ZK001', 'waited for: it has ended');

# --- bounds ---

my ($one, $two) = map { $north->backend(extra_params => [ '-U', $_ ]) } qw(one two);
sub fill { my ($backend) = @_; my $count = 0; $count++ while $count < 1000 && $backend->errcode("SELECT zk_claim_request('/fill/" . $backend->pid . "/$count', '1 h')") eq ''; return $count; }
my @counts = (fill($one), fill($two));
note "@counts claims of two roles";
cmp_ok($counts[0], '<', 40, 'a role leaves room for another one');
cmp_ok($counts[1], '>', 10, 'which gets its part');
like($one->run(q{SELECT zk_claim_request('/fill', '1 h')})->{err}, qr/53400: too many claims for one role/, 'and then an error says so');
is($n->query(q{SELECT zk_lock_acquire('/room', '1 min')}), 't', 'there is room for others');
is($n->query('SELECT count(zk_claim_release(claim)) FROM zk_claims'), $counts[0] + $counts[1], 'released');
# The worker has yet to delete the znodes.
sub wait_for_room { return $north->wait_until(q{SELECT count(*) = 1 FROM zk_locks}); }
wait_for_room();
is(fill($one) > 20, 1, 'then there is room again');
$_->query('SELECT count(zk_claim_release(claim)) FROM zk_claims') foreach $one;
wait_for_room();

# Of one lock, too.
sub fill_one { my ($backend) = @_; my $count = 0; $count++ while $count < 1000 && $backend->errcode(q{SELECT zk_claim_request('/fill', '1 h')}) eq ''; return $count; }
cmp_ok(fill_one($one), '<', 40, 'of one lock: bounded as well');
is($one->query('SELECT count(zk_claim_release(claim)) > 20 FROM zk_claims'), 't', 'released');

# A superuser's claim cannot use the ticket of another role's session, but does not take its turn, and
# so its place in the queue, away.
$south->set('zklock.tenure', 0);
$s->query(q{SELECT zk_lock_acquire('/turn')});
$one->send(q{SELECT zk_lock_acquire('/turn', '20 s')});
$north->wait_for_ticket('/turn', 'queued');
my $znode_of_turn = q{SELECT DISTINCT znode FROM zk_locks WHERE path = '/turn'};
my $place = $north->safe_psql('postgres', $znode_of_turn);
my $turn = request($n, '/turn');
my $behind = $south->backend;
$behind->send(q{SELECT zk_lock_acquire('/turn')});
$south->wait_for_waiter('/turn', 1);
$south->wait_until_contended('/turn');
kill 'STOP', $one->pid;
$s->query(q{SELECT zk_lock_release('/turn')});
$north->wait_until("SELECT count(*) FILTER (WHERE ticket = 'owned') = 2 OR bool_or(znode <> '$place') FROM zk_locks WHERE path = '/turn'");
is(wait_for($n, $turn, '100 ms'), 'f', 'a claim waits for a session that came first');
kill 'CONT', $one->pid;
is($one->result->{out}, 't', 'which goes before another server');
is($north->safe_psql('postgres', $znode_of_turn), $place, 'by its place in the queue');
$one->query(q{SELECT zk_lock_release('/turn')});
is($behind->result->{out}, 't', 'and then it is that one');
$behind->quit;
is(wait_for($n, $turn), 't', 'and the claim');
call($n, 'zk_claim_release', $turn);

# --- the claims process ---

$c = request($n, '/a');
wait_for($n, $c);
$s->query(q{SELECT zk_lock_acquire('/y')});
$waits = request($n, '/y');
$m->send("SELECT zk_claim_wait('$waits')");
$n->query('BEGIN');
call($n, 'zk_xact_claim_use', $c);
$n->query(q{INSERT INTO t VALUES ('ownerless')});
$third = $north->backend;
$zk->wait_until(sub { $third->query(qq{SELECT waiting_pid FROM zk_claims WHERE claim = '$waits'}) eq $m->pid }, 'the wait to show');
$third->query("SELECT pg_cancel_backend($owner)");
is($third->query('SELECT count(*) FROM zk_claims'), '2', 'a cancel does nothing to the claims process');
$third->query("SELECT pg_terminate_backend($owner, 60000)");
is($m->result->{errcode}, 'ZK001', 'terminated: the wait for a claim ends');
is($third->query('SELECT count(*) FROM zk_claims'), '0', 'terminated: all claims end');
is(code_of($third, 'zk_xact_claim_use', $c), 'ZK001', 'and are of no use any more');
is($n->errcode('COMMIT'), '', 'a transaction that uses one keeps its lock, and commits');
$zk->wait_for_children('/zklock/a', 0);
$c = request($n, '/a');
is(wait_for($n, $c), 't', 'the next request waits until the process runs again');
isnt(owner_pid(), $owner, 'it is another one');

# The first requests of a server, all at the same moment, and with no more processes than PostgreSQL's default.
my $fresh = ZklockNode->started('fresh', $zk, %settings, 'max_worker_processes' => 8);
my ($gate, @first) = map { $fresh->backend } 0 .. 24;
$gate->query('SELECT pg_advisory_lock(1)');
$first[$_]->send("SELECT zk_claim_request('/first/$_', '1 h') FROM pg_advisory_xact_lock_shared(1)") foreach 0 .. $#first;
$gate->wait_until(q{SELECT count(*) = 24 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted});
$gate->query('SELECT pg_advisory_unlock(1)');
is(join('', map { $_->result->{errcode} || 'ok' } @first), 'ok' x 24, 'the first requests of a server, at once');
$_->quit foreach $gate, @first;
$fresh->stop;

# The worker: claims survive.
my $worker = $north->worker_pid;
$n->query("SELECT pg_terminate_backend($worker)");
$north->wait_until("SELECT worker_pid <> $worker FROM zk_status");
$north->wait_until_connected;
is(call($n, 'zk_xact_claim_use', $c) > 0, 1, 'another worker: it is held on');
$s->query(q{SELECT zk_lock_release_all()});

# The server.
$s->query(q{SELECT zk_lock_acquire('/y')});
$waits = request($n, '/y');
$_->quit foreach $n, $m, $third, $one, $two;
$north->stop('fast');
is($s->query(q{SELECT zk_lock_acquire('/a', '1 min')}), 't', 'a server that stops gives the claims up');
$north->start;
$n = $north->backend;
like(error_of($n, 'zk_claim_wait', $c)->{err}, qr/42704.*before its last start/s, 'after that, they do not exist');
$zk->wait_for_children('/zklock/y', 1);
pass('nothing is left of one that waited');

$_->quit foreach $n, $s;
done_testing();
