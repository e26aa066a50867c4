
# Claims that belong to no session, while processes stand still, fail and die at each step: nothing waits
# for ever, nothing is left over, and no release overtakes a commit.  Needs servers with fault points
# (make FAULTS=1).

use strict;
use warnings;

use ZklockTest qw(!held);

my $zk = ZooKeeper->new;
my %settings = ('zklock.linger' => 0, 'zklock.on_lost' => 'notice', 'restart_after_crash' => 'on');
my $north = ZklockNode->started('north', $zk, %settings);
my $south = ZklockNode->started('south', $zk, %settings);
my ($victim, $n, $s) = ($north->backend, $north->backend, $south->backend);
$n->query('CREATE TABLE t (v text)');

sub request { my ($backend, $path, $time) = @_; return $backend->query(sprintf q{SELECT zk_claim_request('%s', '%s')}, $path, $time // '1 h'); }
sub sql { my ($function, $claim, @more) = @_; return "SELECT $function('" . join("', '", $claim, @more) . q{')}; }
sub call { my ($backend, @call) = @_; return $backend->query(sql(@call)); }
sub granted { my ($backend, $path, $time) = @_; my $claim = request($backend, $path, $time); is(call($backend, 'zk_claim_wait', $claim, '1 min'), 't', "$path: granted"); return $claim; }
sub owner_pid { return $n->query(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'zklock claims'}); }
sub quit { eval { $_->quit } foreach @_; return; }

# The lock is free for the other server, before a wait of a minute ends; and nothing is left of the claims.
sub is_free
{
	my ($path, $what) = @_;
	is($s->query("SELECT zk_lock_acquire('$path', '1 min')"), 't', "$what: the other server gets the lock");
	$s->query("SELECT zk_lock_release('$path')");
	return $n->wait_until("SELECT NOT EXISTS (SELECT FROM zk_locks WHERE path = '$path' AND claim IS NOT NULL)");
}
sub is_taken { my ($path, $what) = @_; return is($s->query("SELECT zk_lock_acquire('$path', '0')"), 'f', "$what: the other server does not get the lock"); }

my $at;
sub arm { my ($point, $action) = @_; $at = -s $north->logfile; return $north->arm($point, $action); }

# After a crash, all is as at the beginning.
sub come_back
{
	quit($victim, $n);
	$north->wait_for_log(qr/all server processes terminated; reinitializing/, $at);
	$zk->wait_until(sub { eval { $north->safe_psql('postgres', 'SELECT 1'); 1 } }, 'the server to be back');
	$north->wait_until_connected;
	return ($victim, $n) = ($north->backend, $north->backend);
}

# --- each step of a backend and of the claims process ---

# How to get there: what comes first, which returns the claim if there is one, and then what the victim sends.
sub behind { my ($path) = @_; $s->query("SELECT zk_lock_acquire('$path')"); return request($n, $path); }
sub requests { my ($path) = @_; $victim->send("SELECT zk_claim_request('$path', '1 s')"); return; }
sub waits { my ($path, $claim) = @_; $victim->send(sql('zk_claim_wait', $claim)); return; }
sub uses { my ($path, $claim) = @_; $victim->query('BEGIN'); $victim->send(sql('zk_xact_claim_use', $claim)); return; }
sub releases { my ($path, $claim) = @_; $victim->send(sql('zk_claim_release', $claim)); return; }
sub held { my ($path) = @_; return granted($n, $path, '20 s'); }
my %points = (
	'detached-begun' => [ sub { }, \&requests ],
	'claim-requested' => [ sub { }, \&requests ],
	'claim-waiting' => [ \&behind, \&waits ],
	'claims-woken' => [ \&behind, sub { my ($path) = @_; $s->query("SELECT zk_lock_release('$path')"); } ],
	'detached-granted' => [ \&behind, sub { my ($path) = @_; $s->query("SELECT zk_lock_release('$path')"); } ],
	'claim-used' => [ \&held, \&uses ],
	'detached-ending' => [ \&held, \&releases ],
	'claim-released' => [ \&held, \&releases ]);

my $number = 0;
sub get_to
{
	my ($point, $action) = @_;
	my $path = '/step/' . ++$number;
	my ($first, $then) = @{ $points{$point} };
	my $claim = $first->($path);
	arm($point, $action);
	$then->($path, $claim);
	my $process = $north->at_point($point);
	return ($path, $claim, $process);
}

request($n, '/first', '1 s');
foreach my $name (sort keys %points)
{
	my $locked = $name =~ /^detached/;			# the process has detached_lock: no other backend can look at claims

	# It stands still, goes on, and all is as if nothing had happened.
	my ($path, $claim, $process) = get_to($name, 'stop');
	is_taken($path, "$name, stop") if $name !~ /requested|begun|claims-woken|ending|released|waiting/;
	kill 'CONT', $process;
	$s->query("SELECT zk_lock_release('$path')") if $name eq 'claim-waiting';
	$victim->result if $name !~ /claims-woken|granted/;
	$victim->query('COMMIT') if $name eq 'claim-used';
	is(call($n, 'zk_claim_wait', $claim, '1 min'), 't', "$name, stop: granted") if $name =~ /claims-woken|granted|waiting/;
	call($n, 'zk_claim_release', $claim) if defined $claim;
	is_free($path, "$name, stop");

	# The process is terminated while it stands still.
	($path, $claim, $process) = get_to($name, 'stop');
	kill 'TERM', $process;
	kill 'CONT', $process;
	$s->query("SELECT zk_lock_release('$path')") if $name eq 'claim-waiting';
	$victim->result if $name !~ /claims-woken|granted/;
	$n->wait_until("SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $process)");
	quit($victim);
	$victim = $north->backend;
	is(call($n, 'zk_claim_wait', $claim, '1 min'), 't', "$name, terminated: the claim waits on") if $name eq 'claim-waiting';
	call($n, 'zk_claim_release', $claim) if defined $claim;
	is_free($path, "$name, terminated");

	# It fails where functions may.
	if (!$locked)
	{
		($path, $claim) = get_to($name, 'fail');
		$s->query("SELECT zk_lock_release('$path')") if $name eq 'claim-waiting';
		like($victim->result->{err}, qr/failed at fault point/, "$name, fail: an error") if $name ne 'claims-woken';
		$victim->query('ROLLBACK');
		call($n, 'zk_claim_release', $claim) if defined $claim;
		is_free($path, "$name, fail");
	}

	# It is killed, and PostgreSQL starts anew.
	($path, $claim) = get_to($name, 'die');
	$s->query("SELECT zk_lock_release('$path')") if $name eq 'claim-waiting';
	come_back();
	is($n->query('SELECT count(*) FROM zk_claims'), '0', "$name, die: no claims");
	is($n->errcode(sql('zk_claim_wait', $claim)), '42704', "$name, die: the name means nothing any more") if defined $claim;
	is_free($path, "$name, die");
	request($n, '/first', '1 s');
}

# --- order ---

# A backend that has begun to acquire goes before the claims without an advisory lock that come after it, also as
# long as it has no advisory lock yet.
sub begins
{
	my ($path) = @_;
	arm('claim-begun');
	$victim->send("SELECT zk_lock_acquire('$path')");
	return $north->at_point('claim-begun');
}
sub wait_until_owned { my ($path) = @_; return $n->wait_until("SELECT bool_or(ticket = 'owned') FROM zk_locks WHERE path = '$path'"); }
sub waits_on { my ($claim, $what) = @_; return is(call($n, 'zk_claim_wait', $claim, '500 ms'), 'f', "$what: the claim waits"); }

{
	my $process = begins('/order');
	my $claim = request($n, '/order');
	wait_until_owned('/order');
	waits_on($claim, 'order, a backend came before');

	# One that comes later, but has the advisory lock for which the first will wait, goes first.
	is($n->query(q{SELECT zk_lock_acquire('/order', '1 min')}), 't', 'order: a later backend with the advisory lock goes first');
	$n->query(q{SELECT zk_lock_release('/order')});
	waits_on($claim, 'order, that one has ended');
	kill 'CONT', $process;
	is($victim->result->{out}, 't', 'order: then the backend that came first');
	waits_on($claim, 'order, it holds');
	$victim->query(q{SELECT zk_lock_release('/order')});
	is(call($n, 'zk_claim_wait', $claim, '1 min'), 't', 'order: and then the claim');
	call($n, 'zk_claim_release', $claim);
	is_free('/order', 'order');
}

# The later backend comes while an earlier claim waits, and a backend before both.
{
	my $process = begins('/order/circle');
	my @claims = map { request($n, '/order/circle') } 1 .. 2;
	wait_until_owned('/order/circle');
	my $later = $north->backend;
	$later->send(q{SELECT zk_lock_acquire('/order/circle')});
	is($later->result->{out}, 't', 'order, circle: the later backend goes first');
	kill 'CONT', $process;
	$later->query(q{SELECT zk_lock_release('/order/circle')});
	is($victim->result->{out}, 't', 'order, circle: then the first one');
	$victim->query(q{SELECT zk_lock_release('/order/circle')});
	foreach (@claims)
	{
		is(call($n, 'zk_claim_wait', $_, '1 min'), 't', 'order, circle: then the claims');
		call($n, 'zk_claim_release', $_);
	}
	quit($later);
	is_free('/order/circle', 'order, circle');
}

# The backend that came before ends.
{
	my $process = begins('/order/ends');
	my $claim = request($n, '/order/ends');
	wait_until_owned('/order/ends');
	waits_on($claim, 'order, ends');
	kill 'TERM', $process;
	kill 'CONT', $process;
	is(call($n, 'zk_claim_wait', $claim, '1 min'), 't', 'order: a backend that came before has ended');
	call($n, 'zk_claim_release', $claim);
	quit($victim);
	$victim = $north->backend;
	is_free('/order/ends', 'order, ends');
}

# It is of an older generation: it has to begin again anyway.
{
	my $process = begins('/order/lost');
	my $claim = request($n, '/order/lost');
	wait_until_owned('/order/lost');
	waits_on($claim, 'order, lost');
	$north->expire_session($zk);
	is(call($n, 'zk_claim_wait', $claim, '1 min'), 't', 'order, another generation: the claim does not wait for a backend of the old one');
	kill 'CONT', $process;
	call($n, 'zk_claim_release', $claim);
	is($victim->result->{out}, 't', 'order, another generation: which then has the lock');
	$victim->query(q{SELECT zk_lock_release('/order/lost')});
	is_free('/order/lost', 'order, another generation');
}

# A leadership has its turn like a claim.
{
	my $process = begins('/order/leads');
	$north->set('zklock.leader_of', '/order/leads');
	wait_until_owned('/order/leads');
	$n->query('SELECT pg_sleep(0.5)');
	is($n->query(q{SELECT zk_is_leader('/order/leads')}), 'f', 'order, leadership: it waits for a backend that came before');
	kill 'CONT', $process;
	is($victim->result->{out}, 't', 'order, leadership: which has the lock');
	$victim->query(q{SELECT zk_lock_release('/order/leads')});
	$n->wait_until(q{SELECT zk_is_leader('/order/leads')});
	$north->set('zklock.leader_of', '');
	is_free('/order/leads', 'order, leadership');
}

# --- release and lease time against commit ---

# A transaction that uses the claim stands still at a point of its commit.
sub commits
{
	my ($point, $path, $time) = @_;
	my $claim = granted($n, $path, $time);
	$victim->query('BEGIN');
	call($victim, 'zk_xact_claim_use', $claim);
	$victim->query("INSERT INTO t VALUES ('$path')");
	arm($point);
	$victim->send('COMMIT');
	return ($claim, $north->at_point($point));
}
sub rows { my ($path) = @_; return $s->query('SELECT 1') && $n->query("SELECT count(*) FROM t WHERE v = '$path'"); }

foreach my $point (qw(commit-begun guard-passed xact-ended))
{
	foreach my $how ('released', 'owner terminated')
	{
		my $path = "/$point/" . $how =~ s/ .*//r;
		my ($claim, $process) = commits($point, $path);
		if ($how eq 'released')
		{
			is(call($n, 'zk_claim_release', $claim), 't', "$point, $how");
		}
		else
		{
			$n->query('SELECT pg_terminate_backend(' . owner_pid() . ', 60000)');
		}
		is($n->errcode(sql('zk_xact_claim_use', $claim)), 'ZK001', "$point, $how: no further use");
		is_taken($path, "$point, $how") foreach 1 .. 3;
		kill 'CONT', $process;
		is($victim->result->{err}, '', "$point, $how: committed");
		is(rows($path), '1', "$point, $how: the row is there");
		is_free($path, "$point, $how");
	}
}

# The lease time ends while the transaction commits: before the guard, it is refused, and does not keep
# the lock.  From the guard on, it keeps the lock until it has committed.
my ($claim, $process) = commits('commit-begun', '/lease/begun', '5 s');
is($s->query(q{SELECT zk_lock_acquire('/lease/begun', '1 min')}), 't', 'lease time, before the guard: the lock goes');
kill 'CONT', $process;
is($victim->result->{errcode}, 'ZK002', 'lease time, before the guard: refused');
is(rows('/lease/begun'), '0', 'lease time, before the guard: no row');
foreach my $point (qw(guard-passed xact-ended))
{
	($claim, $process) = commits($point, "/lease/$point", '5 s');
	$n->wait_until("SELECT NOT EXISTS (SELECT FROM zk_claims WHERE claim = '$claim')");
	is($n->errcode(sql('zk_xact_claim_use', $claim)), 'ZK002', "lease time, $point: no further use");
	is_taken("/lease/$point", "lease time, $point") foreach 1 .. 3;
	cmp_ok(ZklockNode::wakeups_of($north->worker_pid, 2), '<', 50, "lease time, $point: the worker looks ten times a second");
	kill 'CONT', $process;
	is($victim->result->{err}, '', "lease time, $point: committed, and not late");
	is(rows("/lease/$point"), '1', "lease time, $point: the row is there");
	is_free("/lease/$point", "lease time, $point");
}

# A look by the guard that takes beyond the lease time does not count.
($claim, $process) = commits('guard-looked', '/lease/looked', '5 s');
$n->wait_until("SELECT NOT EXISTS (SELECT FROM zk_claims WHERE claim = '$claim')");
kill 'CONT', $process;
is($victim->result->{errcode}, 'ZK002', 'lease time, the guard looks: refused');
is_free('/lease/looked', 'lease time, the guard looks');

# Lost while it commits: as with any lock, the commit is late, and says so.
($claim, $process) = commits('guard-passed', '/lost');
is($s->query(q{SELECT zk_lock_force_release('/lost')}), '1', 'lost: the znode is deleted');
is($s->query(q{SELECT zk_lock_acquire('/lost', '1 min')}), 't', 'lost: another client may have the lock');
$n->wait_until("SELECT NOT EXISTS (SELECT FROM zk_claims WHERE claim = '$claim')");
kill 'CONT', $process;
like($victim->result->{err}, qr/WARNING:  01ZK1/, 'lost: a WARNING');

# --- the worker ---

# It stands still: the lease time ends all the same.
$claim = granted($n, '/worker', '1 h');
my $worker = $north->worker_pid;
kill 'STOP', $worker;
is(call($n, 'zk_claim_renew', $claim, '1 s'), 't', 'no worker: a shorter lease time');
$n->wait_until("SELECT NOT EXISTS (SELECT FROM zk_claims WHERE claim = '$claim')");
is($n->errcode(sql('zk_claim_wait', $claim)), 'ZK002', 'no worker: the lease time is over');
is(call($n, 'zk_claim_renew', $claim, '1 s'), 'f', 'no worker: not renewed');
kill 'CONT', $worker;
is_free('/worker', 'the worker is back');

# It ends while a claim waits, and the claim goes on with the next one.
$s->query(q{SELECT zk_lock_acquire('/worker')});
$claim = request($n, '/worker');
$victim->send(sql('zk_claim_wait', $claim));
$worker = $north->worker_pid;
kill 'STOP', $worker;
$s->query(q{SELECT zk_lock_release('/worker')});
kill 'TERM', $worker;
kill 'CONT', $worker;
is($victim->result->{out}, 't', 'another worker: granted');
is(call($n, 'zk_claim_release', $claim), 't', 'another worker: released');
is_free('/worker', 'another worker');

# --- shutdown ---

# A fast one lets the commit end, and then the claim.
($claim, $process) = commits('xact-ended', '/stop');
system_or_bail('pg_ctl', '-D', $north->data_dir, '-m', 'fast', '-W', 'stop');
$north->wait_for_log(qr/received fast shutdown request/, $at);
is_taken('/stop', 'fast shutdown') foreach 1 .. 3;
kill 'CONT', $process;
$zk->wait_until(sub { !-e $north->data_dir . '/postmaster.pid' }, 'the server to be down');
$north->_update_pid(0);
is($s->query(q{SELECT zk_lock_acquire('/stop', '1 min')}), 't', 'fast shutdown: then the other server has the lock');
unlike(slurp_file($north->logfile, $at), qr/locks are still held|terminated by signal/, 'fast shutdown: nothing is left');

quit($victim, $n, $s);
done_testing();
