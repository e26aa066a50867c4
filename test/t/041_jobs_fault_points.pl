
# A process stops, fails or dies at each step of a job's run: a tick runs at most once, and at
# least once where callers retry.  Needs servers with fault points (make FAULTS=1).

use strict;
use warnings;

use HoldingProxy;
use ZklockTest;

my $zk = ZooKeeper->new;
my $proxy = HoldingProxy->new($zk->hosts);
my %settings = ('zklock.connection_timeout' => '2min', 'zklock.linger' => 0);
my $node_a = ZklockNode->started('a', undef, %settings,
	'zklock.hosts' => $proxy->address, 'zklock.session_timeout' => '30s', 'restart_after_crash' => 'on');
my $node_b = ZklockNode->started('b', $zk, %settings, 'zklock.session_timeout' => '60s');
my $judge = $node_b->backend;
my $other = $node_b->backend;
$node_a->safe_psql('postgres', 'CREATE TABLE ran (path text)');

my $tick = '2024-05-05 03:00Z';
my $records = '/zklock/.zklock/jobs';

sub run_once { my ($path, $more, $at) = @_; return "SELECT zk_xact_run_once('$path', '" . ($at // $tick) . "'" . ($more ? ", $more)" : ", timeout => '1min')"); }
sub retry { my ($path) = @_; return run_once($path, q{timeout => '1min', retry => true}); }
sub field { my ($path, $column) = @_; return $other->query("SELECT $column FROM zk_jobs() WHERE path = '$path'"); }
sub wait_for_state
{
	my ($path, $state) = @_;
	return $zk->wait_until(sub { field($path, 'state') eq $state }, "the record of $path to say $state");
}
sub ran { my ($path) = @_; return $node_a->safe_psql('postgres', "SELECT count(*) FROM ran WHERE path = '$path'"); }

# A job that has run before, as most jobs have.
sub made
{
	my ($path) = @_;
	$judge->query('BEGIN');
	$judge->query(run_once($path, undef, '2024-05-05 02:00Z'));
	$judge->query('COMMIT');
	wait_for_state($path, 'done');
	$node_b->wait_until_clean($path);
	return;
}

# Begin a run with this point armed; "at_commit" arms it when the run goes on.
sub run_with
{
	my ($path, $point, $action, $at_commit) = @_;
	my $runner = $node_a->backend;
	made($path);
	$node_a->arm($point, $action) unless $at_commit;
	$runner->query('BEGIN');
	$runner->send(run_once($path));
	if ($at_commit)
	{
		is($runner->answer, 't', "$point, $action: runs");
		$runner->query("INSERT INTO ran VALUES ('$path')");
		$node_a->arm($point, $action);
		$runner->send('COMMIT');
	}
	return ($runner, $node_a->at_point($point));
}

my %at_commit = map { $_ => 1 } qw(run-end-queued run-end-asked run-end-sent run-end-answered);
my @points = map { s/^zklock\.fault\.//r } qw(
	zklock.fault.record-read
	zklock.fault.run-start-asked
	zklock.fault.run-start-sent
	zklock.fault.run-start-answered
	zklock.fault.run-started
	zklock.fault.run-end-queued
	zklock.fault.run-end-asked
	zklock.fault.run-end-sent
	zklock.fault.run-end-answered);

# --- the server dies ---

# What the record may say then, and what a call that retries gets.
my %after = (
	'record-read' => [ qr/^done$/, 't' ],
	'run-start-asked' => [ qr/^done$/, 't' ],
	'run-start-sent' => [ qr/^(done|started)$/, 't' ],
	'run-start-answered' => [ qr/^started$/, 't' ],
	'run-started' => [ qr/^started$/, 't' ],
	'run-end-queued' => [ qr/^(started|done)$/, undef ],
	'run-end-asked' => [ qr/^(started|done)$/, undef ],
	'run-end-sent' => [ qr/^(started|done)$/, undef ],
	'run-end-answered' => [ qr/^done$/, 'f' ]);
foreach my $point (@points)
{
	my $path = "/die $point";
	my ($runner) = run_with($path, $point, 'die', $at_commit{$point});
	$runner->result;
	$zk->wait_until(sub { eval { $node_a->safe_psql('postgres', 'SELECT 1'); 1 } }, 'the server to be back');
	$node_a->wait_until_connected;
	is(ran($path), $at_commit{$point} ? '1' : '0', "$point, die: what was committed is there");

	my $state = field($path, 'state');
	like($state, $after{$point}[0], "$point, die: the record");
	my $used = field($path, "tick = '$tick'") eq 't';
	is($judge->query(run_once($path, q{timeout => '1min'})), $used ? 'f' : 't', "$point, die: at most once");
	next unless $used;
	is($judge->query(retry($path)), $after{$point}[1] // ($state eq 'done' ? 'f' : 't'), "$point, die: at least once");
	wait_for_state($path, 'done');
}

# --- only the worker fails; the next one finds out ---

foreach my $point (grep { /-(sent|answered)$/ } @points)
{
	my $path = "/fail $point";
	my ($runner) = run_with($path, $point, 'fail', $at_commit{$point});
	is($runner->answer, $at_commit{$point} ? '' : 't', "$point, fail: the backend does not notice");
	if (!$at_commit{$point})
	{
		is(field($path, q{attempt || ' ' || state}), '1 started', "$point, fail: written once");
		$runner->query('COMMIT');
	}
	wait_for_state($path, 'done');
	is($judge->query(retry($path)), 'f', "$point, fail: used up");
	$runner->quit;
}

# --- the backend fails ---

foreach my $point (qw(record-read run-started))
{
	my $path = "/error $point";
	my ($runner) = run_with($path, $point, 'fail');
	is($runner->result->{errcode}, 'XX000', "$point, error: the call fails");
	$runner->query('ROLLBACK');
	$node_a->wait_until_clean($path);
	wait_for_state($path, $point eq 'run-started' ? 'failed' : 'done');
	is($judge->query(retry($path)), 't', "$point, error: another may run");
	wait_for_state($path, 'done');
	$runner->quit;
}

# --- cancelled, or terminated, while the write has no answer ---

foreach my $how (qw(cancel terminate))
{
	foreach my $point (qw(run-start-sent run-start-answered))
	{
		my $path = "/$how $point";
		my ($runner, $worker) = run_with($path, $point, 'stop');
		$node_a->safe_psql('postgres', "SELECT pg_${how}_backend(" . $runner->pid . ')');
		like($runner->result->{errcode}, qr/^57/, "$point, $how: the error comes at once");
		kill 'CONT', $worker;
		wait_for_state($path, 'failed');
		is(field($path, "tick = '$tick'"), 't', "$point, $how: then the record says failed");
		is($judge->query(run_once($path)), 'f', "$point, $how: used up");
		is($judge->query(retry($path)), 't', "$point, $how: but not for a call that retries");
		wait_for_state($path, 'done');
		$runner->quit if $how eq 'cancel';
	}
}

# --- the answer to the write is lost ---

foreach my $what (qw(requests replies))
{
	my $path = "/lost $what";
	my ($runner, $process) = run_with($path, 'record-read', 'stop');
	my $version = $zk->get("$records/" . substr($path, 1))->{version};
	my $holder = $node_a->backend;
	$proxy->hold($what);
	kill 'CONT', $process;
	$zk->wait_until(sub { @{ $zk->children("/zklock$path") } == 1 }, 'the ticket') if $what eq 'replies';
	$proxy->cut;
	is($runner->answer, 't', "lost $what: runs");
	is($zk->get("$records/" . substr($path, 1))->{version}, $version + 1, "lost $what: written once");
	$runner->query('COMMIT');
	wait_for_state($path, 'done');
	$_->quit foreach $runner, $holder;
}

# The answer to the write alone is lost.  The worker stands still before it sends the write, which the
# kernel would deliver soon after.
foreach my $point (qw(run-start-asked run-end-asked))
{
	my $path = "/lost $point";
	my ($runner, $worker) = run_with($path, $point, 'stop', $at_commit{$point});
	my $version = $zk->get("$records/" . substr($path, 1))->{version};
	$proxy->hold('replies');
	kill 'CONT', $worker;
	$zk->wait_until(sub { $zk->get("$records/" . substr($path, 1))->{version} > $version }, 'the write');
	$proxy->cut;
	is($runner->answer, $at_commit{$point} ? '' : 't', "$point, lost: the backend does not notice");
	$runner->query('COMMIT') unless $at_commit{$point};
	wait_for_state($path, 'done');
	$node_a->wait_until_clean($path);
	is($zk->get("$records/" . substr($path, 1))->{version}, $version + ($at_commit{$point} ? 1 : 2), "$point, lost: written once");
	$runner->quit;
}

# --- the record changes between the look and the write ---

# Another server has run the tick, or failed to run it.
foreach my $end (qw(COMMIT ROLLBACK))
{
	my $path = "/changed $end";
	my ($runner, $process) = run_with($path, 'record-read', 'stop');
	$judge->query('BEGIN');
	is($judge->query(run_once($path)), 't', "changed, $end: another runs meanwhile");
	$judge->query($end);
	wait_for_state($path, $end eq 'COMMIT' ? 'done' : 'failed');
	kill 'CONT', $process;
	is($runner->answer, 'f', "changed, $end: used up");
	$runner->query('COMMIT');
	is($judge->query(retry($path)), $end eq 'COMMIT' ? 'f' : 't', "changed, $end: retry");
	$runner->quit;
}

# The record was deleted and made anew, and has the same version again.
my ($runner, $process) = run_with('/anew', 'record-read', 'stop');
$judge->query(q{SELECT zk_job_forget('/anew')});
$judge->query('BEGIN');
is($judge->query(run_once('/anew')), 't', 'anew: another runs meanwhile');
$judge->query('COMMIT');
wait_for_state('/anew', 'done');
kill 'CONT', $process;
is($runner->answer, 'f', 'anew: used up');
$runner->query('COMMIT');
is(field('/anew', 'state'), 'done', 'anew: what the other server has done stays in the record');
is($judge->query(run_once('/anew')), 'f', 'anew: for the others, too');

# The same while the write is under way, and the new record is of a later tick.  The write replaces it.
# So the run does not begin, and neither tick can be run again.
foreach my $then (qw(answered cancelled))
{
	my $path = "/overtaken, $then";
	my $record = "$records/" . substr($path, 1);
	my $later = '2024-05-05 04:00Z';
	my ($runner, $worker) = run_with($path, 'run-start-asked', 'stop');
	my $made = $zk->get($record);
	my $data = $made->{data} =~ s/tick=\d+/'tick=' . $other->query("SELECT (extract(epoch FROM '$later'::timestamptz) * 1000000)::bigint")/er;
	$proxy->hold('requests');
	kill 'CONT', $worker;
	is($judge->query("SELECT zk_job_forget('$path')"), 't', "overtaken, $then: removed");
	$zk->create($record, data => $data);
	$zk->set($record, $data) foreach 1 .. $made->{version};
	if ($then eq 'cancelled')
	{
		$node_a->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $runner->pid . ')');
		is($runner->result->{errcode}, '57014', 'overtaken, cancelled: the error comes at once');
	}
	$proxy->pass;
	is($runner->answer, 'f', 'overtaken: does not run') if $then eq 'answered';
	$runner->query('ROLLBACK');
	$zk->wait_until(sub { field($path, q{server || ' ' || state}) eq 'a done' }, 'the record to be closed');
	is($judge->query(run_once($path, q{timeout => '1min'}, $later)), 'f', "overtaken, $then: the later tick stays used up");
	is($judge->query(retry($path)), 'f', "overtaken, $then: so does this one");
	$runner->quit;
}

# The record is deleted, and not made anew.
($runner, $process) = run_with('/gone', 'record-read', 'stop');
$judge->query(q{SELECT zk_job_forget('/gone')});
kill 'CONT', $process;
is($runner->answer, 't', 'gone: runs');
$runner->query('COMMIT');
wait_for_state('/gone', 'done');

# --- the lock is lost before the write ---

# A call whose write comes first may return before its server hears of the loss.
my $worker;
($runner, $worker) = run_with('/lost lock', 'run-start-asked', 'stop');
my $session = $node_a->status('session_id');
$zk->kill_session($session);
kill 'CONT', $worker;
is($runner->result->{errcode}, 'ZK001', 'lost lock: the call fails');
$runner->query('ROLLBACK');
$node_a->wait_until_connected;
$zk->wait_until(sub { field('/lost lock', 'state') ne 'started' }, 'the record to be settled');
is($judge->query(retry('/lost lock')), 't', 'lost lock: another runs');

$_->quit foreach $judge, $other;
done_testing();
