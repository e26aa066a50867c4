
# A leader that is cut off, stands still, fails or dies, at each step: at no time do two servers
# lead, and no deposed leader commits.  Needs servers with fault points (make FAULTS=1).

use strict;
use warnings;

use HoldingProxy;
use ZklockTest;

my $path = '/leaders/cron';
my $zk = ZooKeeper->new;
my $proxy = HoldingProxy->new($zk->hosts);
my %settings = ('zklock.leader_of' => $path, 'zklock.linger' => '10s', 'zklock.on_lost' => 'notice');
my $north = ZklockNode->started('north', undef, %settings, 'zklock.hosts' => $proxy->address,
	'zklock.session_timeout' => '5s', 'restart_after_crash' => 'on', init => [ allows_streaming => 1 ]);
$north->safe_psql('postgres', 'CREATE TABLE t (v text)');
$north->wait_until("SELECT zk_is_leader('$path')");
my $n = $north->backend;

# Every resignation gives the ticket up.  If the ticket lingered, the claims process would take it
# again, and lead on before the servers that queue behind it.
foreach my $i (1 .. 3)
{
	my $ticket = $zk->children("/zklock$path")->[0];
	$n->query("SELECT zk_leader_resign('$path')");
	$n->wait_until("SELECT zk_is_leader('$path')");
	isnt($zk->children("/zklock$path")->[0], $ticket, "resigned $i times: with another ticket");
}

my $south = ZklockNode->started('south', $zk, %settings, 'zklock.session_timeout' => '20s');
my ($s, $relies) = map { $_->backend } $south, $north;

# A statement fails if the leadership is not certain any more when it ends.
sub leads
{
	my ($backend) = @_;
	my $result = $backend->run("SELECT zk_is_leader('$path')");
	return $result->{errcode} eq 'ZK001' ? 'f' : $result->{out};
}
sub resign { my ($backend, $pause) = @_; return $backend->query("SELECT zk_leader_resign('$path', '" . ($pause // '0') . "')"); }
sub leader_pid { return $n->query(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'zklock claims'}); }

# Wait until one server leads, and the other stands behind it.
sub wait_for_line
{
	my ($expected) = @_;
	my $line = q{SELECT string_agg(server || CASE WHEN leads THEN '*' ELSE '' END, ' ' ORDER BY position) FROM zk_leaders};
	return $zk->wait_until(sub { $s->query($line) eq $expected }, "the line to be: $expected");
}

# Also if the server has ended them.
sub quit { eval { $_->quit } foreach @_; return; }

# Restore the first state.
sub north_leads
{
	quit($n, $relies);
	$n = $north->backend;
	$north->wait_until_connected;
	wait_for_line('south* north') unless leads($n) eq 't';
	resign($s) if leads($s) eq 't';
	wait_for_line('north* south');
	$zk->wait_until(sub { leads($n) eq 't' }, 'north to lead');
	$relies = $north->backend;
	$relies->query("BEGIN; INSERT INTO t VALUES ('deposed')");
	return is(leads($relies), 't', 'north leads');
}

# A transaction that relied on the leadership does not commit, not even if north leads again.
sub is_deposed
{
	my ($what) = @_;
	return is($relies->errcode('COMMIT'), 'ZK001', "$what: the transaction of before does not commit");
}

# --- what is not certain for long enough ---

# The commit guard would refuse the statement; so it is told that the server does not lead.
is($n->query(q{SET zklock.commit_margin = '5s'}), '', 'a margin as long as the session timeout');
is($n->run("SELECT zk_is_leader('$path')")->{out}, 'f', 'within the margin of the guard: does not lead');
is($n->query("BEGIN; SET LOCAL zklock.commit_margin = 0; SELECT zk_is_leader('$path')"), 't', 'without a margin: leads');
is($n->errcode('ROLLBACK; RESET zklock.commit_margin'), '', 'as before');

# --- the network ---

# A client that asks south first, and then north, never finds that both lead.
north_leads();
my ($both, $neither, $by_south) = (0, 0, '');
$proxy->hold('requests');
$zk->wait_until(sub {
	$by_south = leads($s);
	my $by_north = leads($n);
	$both++ if $by_south eq 't' && $by_north eq 't';
	$neither++ if $by_south eq 'f' && $by_north eq 'f';
	return $by_south eq 't'; }, 'south to lead');
is($both, 0, 'cut off: never do both lead');
cmp_ok($neither, '>', 0, 'cut off: north stops first');
is($relies->errcode('COMMIT'), 'ZK001', 'cut off: no commit');
$relies->query("BEGIN; INSERT INTO t VALUES ('not relied')");
is(leads($relies) . $relies->errcode('COMMIT'), 'f', 'cut off: one that is told so commits');
$proxy->cut;
wait_for_line('south* north');

# The network is cut briefly: north stops in time, and leads on afterwards, with the same token.
north_leads();
$proxy->hold('replies');
$zk->wait_until(sub { leads($n) eq 'f' }, 'north to stop');
is($relies->errcode('SELECT 1'), '', 'short cut: the transaction goes on');
$proxy->cut;
$zk->wait_until(sub { leads($n) eq 't' || leads($s) eq 't' }, 'one to lead');
is($relies->errcode('COMMIT'), leads($n) eq 't' ? '' : 'ZK001', 'short cut: and commits if north leads on');
$n->query('DELETE FROM t');

# --- the claims process stands still ---

north_leads();
my $leader = leader_pid();
kill 'STOP', $leader;
ZklockNode::wait_until_still($leader);
is($relies->errcode('COMMIT'), '', 'stands still: commits');
$relies->query("BEGIN; INSERT INTO t VALUES ('deposed')");
is(leads($relies), 't', 'stands still: leads');
$north->expire_session($zk);
is(leads($n), 'f', 'stands still, expired: does not lead');
$zk->wait_until(sub { leads($s) eq 't' }, 'south to lead');
is_deposed('stands still, expired');
kill 'CONT', $leader;
wait_for_line('south* north');
$n->query('DELETE FROM t');

north_leads();
$leader = leader_pid();
kill 'STOP', $leader;
ZklockNode::wait_until_still($leader);
is(resign($n), 't', 'stands still, resigned');
is(leads($n) . leads($s), 'ff', 'stands still, resigned: no server leads');
is_deposed('stands still, resigned');
kill 'CONT', $leader;
wait_for_line('south* north');

# --- steps of the claims process ---

# From the grant to the announcement, and from the resignation to the end of the claim.
my @points = ('leader-granted', 'leader-ending');

# Let north get to the point; returns the process.
sub get_to
{
	my ($point, $action) = @_;
	north_leads();
	if ($point eq 'leader-granted')
	{
		resign($n);
		wait_for_line('south* north');
		$north->arm($point, $action);
		resign($s);
	}
	else
	{
		$north->arm($point, $action);
		resign($n);
	}
	return $north->at_point($point);
}

foreach my $point (@points)
{
	my $leads = $point eq 'leader-granted' ? 't' : 'f';
	my $process = get_to($point, 'stop');
	is(leads($n) . leads($s), "${leads}f", "$point, stop: which server leads");
	is_deposed("$point, stop");

	# The worker ends meanwhile, and another one carries on.
	my $worker = $north->worker_pid;
	kill 'TERM', $worker;
	$north->wait_until("SELECT worker_pid <> $worker FROM zk_status");
	$north->wait_until_connected;
	is(leads($n) . leads($s), "${leads}f", "$point, stop: the same with another worker");
	$north->expire_session($zk, by_hand => 1);
	$zk->wait_until(sub { leads($s) eq 't' }, 'south to lead');
	is(leads($n), 'f', "$point, stop: not after the session has expired");
	kill 'CONT', $process;
	wait_for_line('south* north');

	get_to($point, 'fail');
	wait_for_line('south* north');
	is(leads($n), 'f', "$point, fail: the next one leads, and it stands behind");
	is_deposed("$point, fail");
	is($n->query(q{SELECT count(*) FROM zk_locks WHERE claim IS NOT NULL}), '1', "$point, fail: with one claim");

	get_to($point, 'die');
	$zk->wait_until(sub { leads($s) eq 't' }, 'south to lead');
	quit($relies, $n);
	$zk->wait_until(sub { eval { $north->safe_psql('postgres', 'SELECT 1'); 1 } }, 'the server to be back');
	wait_for_line('south* north');
	pass("$point, die: the next one leads, and it stands behind");
	$n = $north->backend;
}

# The process is killed while it resigns; and the worker that would start it again is not there.
my $process = get_to('leader-ending', 'stop');
my $worker = $north->worker_pid;
kill 'STOP', $worker;
kill 'TERM', $process;
kill 'CONT', $process;
$zk->wait_until(sub { leader_pid() ne $process }, 'the process to end');
is(leads($n), 'f', 'ended while it resigns: does not lead');
kill 'CONT', $worker;
wait_for_line('south* north');
is_deposed('ended while it resigns');

# --- the worker is away ---

# In a session that outlives the steps of a slow machine.
$north->set_session_timeout($zk, '20s');

# The claims process ends its claim and begins the next one, while no worker deletes the znode of the old
# claim.  Then another worker carries on, or the session is over.
sub claim_is { my ($state) = @_; return $n->wait_until("SELECT string_agg(claim, ' ') IS NOT DISTINCT FROM $state FROM zk_locks WHERE path = '$path'"); }
sub put_back
{
	$north->set('zklock.leader_of', '');
	claim_is('NULL');
	return $north->set('zklock.leader_of', $path);
}
sub is_in_line_once
{
	my ($what) = @_;
	wait_for_line('south* north');
	is($zk->wait_for_children("/zklock$path", 2) && leads($n), 'f', "$what: stands behind, once");
	return;
}

my %replace = (
	'another worker' => sub { my ($worker) = @_; kill 'TERM', $worker; kill 'CONT', $worker; },
	'the same worker' => sub { my ($worker) = @_; kill 'CONT', $worker; },
	'the session has expired' => sub { $north->expire_session($zk, by_hand => 1); });
foreach my $then (sort keys %replace)
{
	foreach (['resigned', sub { resign($n) }], ['removed from the setting and put back', \&put_back])
	{
		my ($what, $do) = @$_;
		north_leads();
		$worker = $north->worker_pid;
		kill 'STOP', $worker;
		$do->();
		claim_is(q{'waiting'});
		is(leads($n) . leads($s), 'ff', "$what without a worker: no server leads");
		$replace{$then}->($worker);
		is_in_line_once("$what without a worker, $then");
		is_deposed("$what without a worker, $then");
	}

	# Put back from its place in the queue.
	my ($ticket) = $n->query("SELECT znode FROM zk_lock_queue('$path') WHERE server = 'north'");
	$worker = $north->worker_pid;
	kill 'STOP', $worker;
	put_back();
	claim_is(q{'waiting'});
	$replace{$then}->($worker);
	is_in_line_once("put back while it stands behind, $then");
	isnt($n->query("SELECT znode FROM zk_lock_queue('$path') WHERE server = 'north'"), $ticket,
		"put back while it stands behind, $then: with another ticket");
}

# Resigned, expired, and then another worker, before the claims process has done anything.
$process = get_to('leader-ending', 'stop');
$north->expire_session($zk, by_hand => 1);
$worker = $north->worker_pid;
kill 'TERM', $worker;
$north->wait_until("SELECT worker_pid <> $worker FROM zk_status");
is(resign($n), 'f', 'resigned and expired: it did not lead when it resigned again');
kill 'CONT', $process;
is_in_line_once('resigned and expired');
is_deposed('resigned and expired');

# The path is removed from the setting between the grant and the announcement.
$process = get_to('leader-granted', 'stop');
$north->set('zklock.leader_of', '');
is(leads($n), 't', 'removed while it is granted: leads until the process has seen it');
kill 'CONT', $process;
wait_for_line('south*');
is(leads($n), 'f', 'removed while it is granted: leads no longer');
is_deposed('removed while it is granted');
$north->set('zklock.leader_of', $path);
wait_for_line('south* north');

# --- a commit that has passed the guard ---

# South leads, and a transaction that relies on it stands still at the point.
$south->safe_psql('postgres', 'CREATE TABLE t (v text)');
my $ticket;
sub south_commits
{
	my ($point) = @_;
	my $commits = $south->backend;
	wait_for_line('south* north') if leads($s) eq 't';
	if (leads($n) eq 't')
	{
		wait_for_line('north* south');			# its claims process may start again just now
		resign($n);
	}
	wait_for_line('south* north');
	$zk->wait_until(sub { leads($s) eq 't' }, 'south to lead');
	($ticket) = $n->query("SELECT znode FROM zk_lock_queue('$path') WHERE server = 'south'");
	$commits->query("BEGIN; INSERT INTO t VALUES ('$point')");
	is(leads($commits), 't', "$point: it relies on the leadership");
	$south->arm($point);
	$commits->send('COMMIT');
	return ($commits, $south->at_point($point));
}

# The guard counts on the leadership for 0.4 session timeouts and more; the leadership does not end
# in that time.
sub is_not_overtaken
{
	my ($what) = @_;
	my $until = time + 7;
	my ($looks, $gone) = (0, 0);
	foreach (1 .. 10)
	{
		my $is_gone = leads($n) eq 't' || !grep { $_ eq $ticket } @{ $zk->children("/zklock$path") };
		last if time > $until;
		$looks++;
		$gone++ if $is_gone;
	}
	note "$looks looks";
	return is($gone, 0, "$what: the leadership does not end before the commit");
}

my %give_up = (
	'resigned' => sub { $s->send("SELECT zk_leader_resign('$path')"); },
	'removed from the setting' => sub { $south->set('zklock.leader_of', ''); },
	'terminated' => sub { $s->query(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'zklock claims'}); });
my $asks = $south->backend;
foreach my $what (sort keys %give_up)
{
	my ($commits, $still) = south_commits('guard-passed');
	my $rows = $asks->query('SELECT count(*) FROM t');
	$give_up{$what}->();
	$zk->wait_until(sub { leads($asks) eq 'f' }, 'south to lead no longer');
	is($asks->query(q{SELECT count(*) FROM generate_series(1, 20) AS i WHERE zk_claim_wait(zk_claim_request('/other/' || i, '1 h'), '1 min')}), '20',
		"$what: claims are granted while the leadership waits for a commit") if $what ne 'terminated';
	is_not_overtaken($what);
	ok(!$s->is_done, "$what: the call waits for the commit") if $what eq 'resigned';
	kill 'CONT', $still;
	is($commits->result->{err}, '', "$what: commit");
	is($s->result->{out} . ($asks->query('SELECT count(*) FROM t') - $rows), 't1', "$what: when the call returns, it has committed") if $what eq 'resigned';
	$zk->wait_until(sub { leads($n) eq 't' }, 'north to lead');
	is($asks->query('SELECT count(*) FROM zk_claims WHERE zk_claim_release(claim)'), '20', "$what: and stay") if $what ne 'terminated';
	$south->set('zklock.leader_of', $path);
	quit($commits);
}

# A fast shutdown lets the commit end, and then the leadership.
my ($commits, $still) = south_commits('xact-ended');
my $at = -s $south->logfile;
system_or_bail('pg_ctl', '-D', $south->data_dir, '-m', 'fast', '-W', 'stop');
$south->wait_for_log(qr/received fast shutdown request/, $at);
is_not_overtaken('fast shutdown');
kill 'CONT', $still;
$zk->wait_until(sub { !-e $south->data_dir . '/postmaster.pid' }, 'the server to be down');
$south->_update_pid(0);
quit($s, $asks, $commits);
$zk->wait_until(sub { leads($n) eq 't' }, 'north to lead');
$south->start;
$s = $south->backend;
wait_for_line('north* south');

# A commit that takes too long is overtaken at last, and reported.
north_leads();
$north->arm('guard-passed');
$relies->send('COMMIT');
$still = $north->at_point('guard-passed');
is(resign($n), 't', 'too long: resigned');
$zk->wait_until(sub { leads($s) eq 't' }, 'south to lead');
kill 'CONT', $still;
like($relies->result->{err}, qr{WARNING:  01ZK1: transaction committed \S+ ms after lock "$path" was last certain$}m, 'too long: a WARNING');
is($n->query('SELECT late_commits FROM zk_stat'), '1', 'too long: it counts');
is($n->query(q{DELETE FROM t WHERE v = 'deposed' RETURNING v}), 'deposed', 'too long: it has committed');

# So is a commit whose leadership was lost because another client has deleted the znode.
north_leads();
$north->arm('guard-passed');
$relies->send('COMMIT');
$still = $north->at_point('guard-passed');
($ticket) = $s->query("SELECT znode FROM zk_lock_queue('$path') WHERE server = 'north'");
$zk->delete("/zklock$path/$ticket");
$zk->wait_until(sub { leads($s) eq 't' && leads($n) eq 'f' }, 'south to lead, and north to know');
kill 'CONT', $still;
like($relies->result->{err}, qr{WARNING:  01ZK1: transaction committed \S+ ms after lock "$path" was last certain$}m, 'deleted: a WARNING');
is($n->query(q{DELETE FROM t WHERE v = 'deposed' RETURNING v}), 'deposed', 'deleted: it has committed');
wait_for_line('south* north');

# --- shutdown ---

# In each state, a stop gives the leadership up before the session would expire.  A process that stands
# still goes on when the postmaster has told it to end.
sub stop
{
	my ($mode, $what, $process) = @_;
	my $session = $north->status('session_id');
	my $at = -s $north->logfile;
	system_or_bail('pg_ctl', '-D', $north->data_dir, '-m', $mode, '-W', 'stop');
	$north->wait_for_log(qr/received $mode shutdown request/, $at);
	is($relies->errcode('COMMIT'), '', "$what: the leader's transaction commits") if $mode eq 'smart';
	quit($n, $relies);
	kill 'CONT', $process if $process;
	$zk->wait_until(sub { !-e $north->data_dir . '/postmaster.pid' }, 'the server to be down');
	$north->_update_pid(0);
	ok(!$zk->has_session($session), "$what: the session is closed");
	$zk->wait_until(sub { leads($s) eq 't' }, 'south to lead');
	unlike(slurp_file($north->logfile, $at), qr/locks are still held|terminated by signal/, "$what: nothing is left");
	$north->start;
	$n = $north->backend;
	return wait_for_line('south* north');
}

stop('fast', 'fast, stands behind');
foreach my $point (@points)
{
	$process = get_to($point, 'stop');
	stop('fast', "fast, $point", $process);
}
north_leads();
stop('smart', 'smart');
$n->query('DELETE FROM t');

# --- a standby ---

# A standby may lead only as long as the setting lets it, or after it is promoted.
my $west = ZklockNode->standby('west', $north, 'zklock.leader_of' => '/leaders/west');
my $w = $west->backend;
foreach my $then ('off', 'promoted')
{
	my $at = -s $west->logfile;
	$west->arm('leader-granted');
	$west->set('zklock.leader_on_standby', 'on');
	my $process = $west->at_point('leader-granted');
	is($w->query(q{SELECT zk_is_leader('/leaders/west')}), 't', "standby, granted: leads");
	my $token = $w->query(q{SELECT token FROM zk_locks WHERE path = '/leaders/west'});
	$west->set('zklock.leader_on_standby', 'off');
	$west->promote if $then eq 'promoted';
	kill 'CONT', $process;
	if ($then eq 'off')
	{
		$zk->wait_for_children('/zklock/leaders/west', 0);
		is($w->query(q{SELECT zk_is_leader('/leaders/west')}), 'f', "standby, granted, then off: leads no longer");
		next;
	}
	$west->wait_for_log(qr{this server now leads "/leaders/west"}, $at);
	is($w->query(q{SELECT zk_is_leader('/leaders/west') || ' ' || token FROM zk_locks WHERE path = '/leaders/west'}), "true $token",
		"standby, granted, then promoted: leads on");
}
$w->quit;

is($n->query(q{SELECT count(*) FROM t WHERE v = 'deposed'}), '0', 'no deposed leader has committed');
$_->quit foreach $n, $s;
done_testing();
