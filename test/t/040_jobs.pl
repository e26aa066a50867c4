
# Jobs: once a tick, on two servers, whatever the schedulers' clocks say and whichever server dies.

use strict;
use warnings;

use FindBin;
use List::Util qw(min);

use HoldingProxy;
use PgWire;
use ZklockTest;

my $zk = ZooKeeper->new;
my $proxy = HoldingProxy->new($zk->hosts);
my %settings = (
	'zklock.session_timeout' => '30s',
	'zklock.connection_timeout' => '2min',
	'zklock.linger' => 0,
	'zklock.on_lost' => 'notice');
my $node_a = ZklockNode->started('a', $zk, %settings, init => [ allows_streaming => 1 ]);
my $node_b = ZklockNode->started('b', undef, %settings, 'zklock.hosts' => $proxy->address);
my $node_c = ZklockNode->started('c', $zk, %settings, 'zklock.root' => '/other/root');
my ($a1, $a2, $b1, $b2, $c1) = map { $_->backend } $node_a, $node_a, $node_b, $node_b, $node_c;
$_->safe_psql('postgres', 'CREATE TABLE ran (path text, tick timestamptz)') foreach $node_a, $node_b;

my $records = '/zklock/.zklock/jobs';

sub run_once
{
	my ($path, $tick, $more, $scope) = @_;
	return 'SELECT zk_' . ($scope // '') . "run_once('$path', '$tick'" . ($more ? ", $more" : '') . ')';
}
sub xact_run_once { return run_once(@_[0 .. 1], $_[2] // '', 'xact_'); }
sub field { my ($path, $column) = @_; return $a2->query("SELECT $column FROM zk_jobs() WHERE path = '$path'"); }
sub wait_for_state
{
	my ($path, $state) = @_;
	return $zk->wait_until(sub { field($path, 'state') eq $state }, "the record of $path to say $state");
}
sub run_of_one_tick
{
	my ($backend, $path, $tick) = @_;
	$backend->query('BEGIN');
	is($backend->query(xact_run_once($path, $tick)), 't', "$path: runs at $tick");
	$backend->query('COMMIT');
	wait_for_state($path, 'done');
	return;
}

# False would say that the tick is used up, and 08006 that ZooKeeper cannot be reached.
is($a1->errcode(q{SELECT zk_run_once('/hasty', timeout => '1 microsecond')}), '55P03', 'a timeout shorter than the look at the record');
is($a1->query(q{SELECT errors FROM zk_stat_errors() WHERE sqlstate = '55P03'}), 1, 'which is counted');
is($a1->query(q{SELECT zk_run_once('/hasty')}), 't', '... leaves the tick to the next call');
$a1->query(q{SELECT zk_lock_release('/hasty')});

sub requests { my ($node) = @_; return $node->status('requests'); }

# How many requests a call costs that begins a transaction.  The end of the transaction waits until
# nothing is left of the lock.  (The count is read at once: a lock that is held for longer costs a
# watch.  Therefore take the least of several calls: the machine may stand still meanwhile.)
sub cost
{
	my ($path, $call) = @_;
	my $before = requests($node_a);
	$a1->query('BEGIN');
	my ($result, $after) = split /\n/, $a1->query("SELECT $call\\; SELECT requests FROM zk_status");
	is($result, 't', "cost: $call");
	my $cost = $after - $before;
	$a1->query('COMMIT');
	wait_for_state($path, 'done');
	$node_a->wait_until_clean($path);
	return $cost;
}

# For later: c holds a ticket that will be old by then, below another root, which has no records.
is($c1->query(q{SELECT zk_lock_acquire('/old ticket')}), 't', 'c holds a lock');

# --- both servers call for the same tick ---

foreach my $i (1 .. 20)
{
	my $tick = sprintf '2024-05-05 02:%02d:00Z', $i;
	$_->query('BEGIN') foreach $a1, $b1;
	$_->send(xact_run_once('/both', $tick)) foreach $i % 2 ? ($a1, $b1) : ($b1, $a1);
	my @answers = map { $_->result->{out} } $a1, $b1;
	$_->query('COMMIT') foreach $a1, $b1;
	is(join(' ', sort @answers), 'f t', "same tick $i: exactly one runs");
	wait_for_state('/both', 'done');
	is($_->query(xact_run_once('/both', $tick)), 'f', "same tick $i: used up") foreach $a1, $b1;
}

# While a run goes on, no other run begins, not even of a later tick, unless the call waits.
is($a1->query(run_once('/both', '2024-05-05 03:00Z')), 't', 'a runs');
is($b1->query(run_once('/both', '2024-05-05 03:00Z')), 'f', 'not b, for the same tick');
is($b1->query(run_once('/both', '2024-05-05 03:01Z')), 'f', 'nor for a later one');
is($b1->query(run_once('/both', '2024-05-05 03:00Z', 'retry => true')), 'f', 'nor to retry');
$b1->send(run_once('/both', '2024-05-05 03:01Z', q{timeout => NULL}));
$node_b->wait_for_waiter('/both', 1);
is($a2->query(q{SELECT holder_server FROM zk_jobs WHERE path = '/both'}), 'a', 'the view names the holder');
$a1->query(release('/both'));
is($b1->answer, 't', 'with a timeout, it runs the later tick then');
is(field('/both', q{tick = '2024-05-05 03:01Z' AND server = 'b' AND state = 'started'}), 't', 'and the record says so');
$b1->query(release('/both'));
wait_for_state('/both', 'done');

# --- clocks ---

my $error = $a1->run(run_once('/clock', '2035-01-01Z'));
is($error->{errcode}, '22023', 'a clock in 2035');
like($error->{err}, qr/tick of job "\/clock" is in the future\n.*ZooKeeper's time is/, 'message');
ok(!$zk->exists("$records/clock"), 'uses nothing up');
is($b1->query('SELECT count(*) FROM zk_locks WHERE claim IS NOT NULL'), '0', 'and holds nothing');
is($b1->query(q{SELECT zk_run_once('/clock')}), 't', 'the others run');
$b1->query(release('/clock'));
wait_for_state('/clock', 'done');

# Servers whose clocks differ by twenty seconds have the same minute, at its beginning.
is($a1->query(q{SELECT count(DISTINCT date_bin('1 minute', timestamptz '2024-05-05 02:00Z' + s * interval '1 s' + interval '30 s', 'epoch'))
	FROM generate_series(-20, 20) s}), '1', 'rounded to the nearest minute');

# Half a minute late on one of them: with a spacing it is the same.
run_of_one_tick($a1, '/late', '2024-05-05 02:00Z');
is($b1->query(xact_run_once('/late', '2024-05-05 02:01Z', q{spacing => '1 hour'})), 'f', 'spacing: late by a minute');
is($b1->query(xact_run_once('/late', '2024-05-05 03:00Z', q{spacing => '1 hour'})), 'f', 'spacing: by an hour');
is($b1->query(xact_run_once('/late', '2024-05-06 02:00Z', q{spacing => '1 hour'})), 't', 'the next night');
wait_for_state('/late', 'done');

# --- what it costs ---

run_of_one_tick($a1, '/cost', '2024-05-05 02:00Z');
$node_a->wait_until_clean('/cost');
my $cold = min(map { cost('/cost', q{zk_xact_lock_acquire('/cost')}) } 1 .. 5);
is(min(map { cost('/cost', "zk_xact_run_once('/cost', '2024-05-05 02:5$_:00Z')") } 5 .. 9), $cold + 2,
	"a new tick costs two requests more than the lock ($cold)");
my $before = requests($node_a);
is($a1->query(xact_run_once('/cost', '2024-05-05 02:59Z')), 'f', 'a used tick');
is(requests($node_a) - $before, 1, 'costs one request');

# --- however a run ends ---

my %ends = (
	'commit' => [ 'done', sub { $_[0]->query('COMMIT') } ],
	'rollback' => [ 'failed', sub { $_[0]->query('ROLLBACK') } ],
	'error' => [ 'failed', sub { $_[0]->run('SELECT 1/0'); $_[0]->query('COMMIT'); } ],
	'client' => [ 'failed', sub { $_[0]->kill_client } ],
	'terminated' => [ 'failed', sub { $a2->query('SELECT pg_terminate_backend(' . $_[0]->pid . ')') } ]);
foreach my $end (sort keys %ends)
{
	my $runner = $node_b->backend;
	$runner->query('BEGIN');
	is($runner->query(xact_run_once("/xact/$end", '2024-05-05 02:00Z')), 't', "transaction, $end: runs");
	if ($end eq 'terminated') { $b2->query('SELECT pg_terminate_backend(' . $runner->pid . ')'); }
	else { $ends{$end}[1]->($runner); }
	wait_for_state("/xact/$end", $ends{$end}[0]);
	pass("transaction, $end: the record says $ends{$end}[0]");
	$runner->quit if $end =~ /commit|rollback|error/;
}

# For a session-level run, only a release says that the run is done.
my $release_run = sub { my ($runner) = @_; return $runner->query('SELECT zk_lock_release(path) FROM zk_locks WHERE pid = pg_backend_pid()'); };
%ends = (
	'release' => [ 'done', $release_run ],
	'release of all' => [ 'done', sub { $_[0]->query('SELECT zk_lock_release_all()') } ],
	'multilock' => [ 'done', sub { $_[0]->query('SELECT zk_multilock_release(array_agg(path)) FROM zk_locks WHERE pid = pg_backend_pid()') } ],
	'release, rollback' => [ 'done', sub { $_[0]->query('BEGIN'); $release_run->($_[0]); $_[0]->query('ROLLBACK'); } ],
	'release, rollback to' => [ 'done', sub { $_[0]->query('BEGIN; SAVEPOINT s'); $release_run->($_[0]); $_[0]->query('ROLLBACK TO s; COMMIT'); } ],
	'error, release' => [ 'failed', sub { $_[0]->run('SELECT 1/0'); $release_run->($_[0]); } ],
	'quit' => [ 'failed', sub { $_[0]->quit } ],
	'error, quit' => [ 'failed', sub { $_[0]->run('SELECT 1/0'); $_[0]->quit; } ],
	'transaction, quit' => [ 'failed', sub { $_[0]->query('BEGIN'); $_[0]->quit; } ],
	'client' => [ 'failed', sub { $_[0]->kill_client } ],
	'terminated' => [ 'failed', sub { $b2->query('SELECT pg_terminate_backend(' . $_[0]->pid . ')') } ],
	'discard' => [ 'failed', sub { $_[0]->query('DISCARD ALL') } ],
	'unlock' => [ 'failed', sub { $_[0]->query('SELECT pg_advisory_unlock_all()') } ],
	'hold limit' => [ 'failed', sub { $_[0]->query(q{SELECT zk_lock_acquire(path, lease_time => '100 ms') FROM zk_locks WHERE pid = pg_backend_pid()}) } ],
	# The worker must not mark the claim as lost before the release.
	'hold limit, release' => [ 'failed', sub {
		my $worker = $node_b->worker_pid;
		kill 'STOP', $worker;
		$_[0]->query(q{SELECT zk_lock_acquire(path, lease_time => '100 ms') FROM zk_locks WHERE pid = pg_backend_pid()});
		$_[0]->query('SELECT pg_sleep(0.1)');
		$_[0]->run('SELECT zk_lock_release_all()');
		kill 'CONT', $worker;
	} ],
	'taken away' => [ 'failed', sub { $b2->query(q{SELECT zk_lock_force_release('/session/taken away')}) } ]);
foreach my $end (sort keys %ends)
{
	my $runner = $node_b->backend;
	is($runner->query(run_once("/session/$end", '2024-05-05 02:00Z')), 't', "session, $end: runs");
	$ends{$end}[1]->($runner);
	wait_for_state("/session/$end", $ends{$end}[0]);
	pass("session, $end: the record says $ends{$end}[0]");
	$runner->quit unless $end =~ /quit|client|terminated/;
}

# The last transaction before the release that has run a statement decides.
my $count = 0;
foreach (
	[ 'done', 'ROLLBACK' ],
	[ 'done', 'BEGIN', 'ROLLBACK' ],
	[ 'done', 'BEGIN', 'SAVEPOINT s', 'RELEASE s', 'ABORT' ],
	[ 'done', 'BEGIN', 'SELECT 1', 'COMMIT AND CHAIN', 'ROLLBACK AND CHAIN', 'ROLLBACK' ],
	[ 'done', 'SELECT 1/0', 'SELECT 1', 'ROLLBACK' ],
	[ 'done', 'DO $$ BEGIN PERFORM 1; COMMIT; ROLLBACK; END $$' ],
	[ 'failed', 'BEGIN', 'SELECT 1', 'ROLLBACK' ],
	[ 'failed', 'BEGIN', 'SELECT 1', 'ROLLBACK', 'COMMIT' ],
	[ 'failed', 'BEGIN', 'SELECT 1', 'ROLLBACK AND CHAIN', 'COMMIT' ],
	[ 'failed', 'BEGIN', 'NOTIFY nobody', 'ROLLBACK', 'ROLLBACK' ],
	[ 'failed', 'BEGIN', 2026, 'ROLLBACK' ],			# a call of pg_backend_pid() by the fast path
	[ 'failed', 'SELECT 1; ROLLBACK' ],
	[ 'failed', 'SELECT 1/0', 'BEGIN', 'COMMIT' ],
	[ 'failed', 'SELEC', 'ROLLBACK' ],
	[ 'failed', 'BEGIN', 'SAVEPOINT s', 'SELEC', 'ROLLBACK TO s', 'ROLLBACK' ],
	[ 'failed', 'BEGIN', 'SELECT 1/0', 'COMMIT', 'COMMIT' ],
	[ 'failed', 'DO $$ BEGIN PERFORM 1; ROLLBACK; END $$' ],
	[ 'failed', 'DO $$ BEGIN PERFORM 1; COMMIT; PERFORM 1/0; END $$', 'ROLLBACK' ])
{
	my ($state, @statements) = @$_;
	my $path = '/decides/' . ++$count;
	my $runner = PgWire->new($node_b->host, $node_b->port, 'decides');
	is($runner->query(run_once($path, '2024-05-05 02:00Z'))->{rows}[0][0], 't', "$path: runs");
	/^\d+$/ ? $runner->call($_) : $runner->query($_) foreach @statements;
	is($runner->query("SELECT zk_lock_release('$path')")->{rows}[0][0], 't', "$path: is released");
	$zk->wait_until(sub { field($path, 'state') ne 'started' }, "the run of $path to end");
	is(field($path, 'state'), $state, join('; ', @statements) . ": $state");
	$runner->close;
}

# --- retry, and standing by ---

$a1->query('BEGIN');
is($a1->query(xact_run_once('/retry', '2024-05-05 02:00Z', 'retry => true')), 't', 'retry: a runs');
$b1->query('BEGIN');
$b1->send(xact_run_once('/retry', '2024-05-05 02:00Z', 'timeout => NULL, retry => true'));
$node_b->wait_for_waiter('/retry', 1);
$a1->query('ROLLBACK');
is($b1->answer, 't', 'retry: a fails, b takes over');
is(field('/retry', q{attempt || ' ' || server || ' ' || state}), '2 b started', 'retry: it is the second attempt');
$a1->send(xact_run_once('/retry', '2024-05-05 02:00Z', 'timeout => NULL, retry => true'));
$node_a->wait_for_waiter('/retry', 1);
$b1->query('COMMIT');
is($a1->answer, 'f', 'retry: b succeeds, a does not run');
is(field('/retry', 'state'), 'done', 'retry: done before the next has the lock');
is($a1->query('SELECT count(*) FROM zk_locks WHERE claim IS NOT NULL'), '0', 'retry: a holds nothing');
is($b1->query(xact_run_once('/retry', '2024-05-05 02:00Z', q{timeout => '0', retry => true})), 'f', 'retry: no server runs it any more');

# Forgotten while callers wait: the record of a run that has ended since is not overwritten.
$a1->query(run_once('/forgotten', '2024-05-05 01:00Z'));
$a1->query(q{SELECT zk_lock_release('/forgotten')});
wait_for_state('/forgotten', 'done');
$a1->query(q{SELECT zk_lock_acquire('/forgotten')});
my $b3 = $node_b->backend;
$b1->query('BEGIN');
$b1->send(xact_run_once('/forgotten', '2024-05-05 03:00Z', 'timeout => NULL'));
$node_b->wait_for_waiter('/forgotten', 1);
$b3->send(xact_run_once('/forgotten', '2024-05-05 02:00Z', 'timeout => NULL'));
$node_b->wait_for_waiter('/forgotten', 2);
is($a2->query(q{SELECT zk_job_forget('/forgotten')}), 't', 'forgotten: while two wait');
$a1->query(q{SELECT zk_lock_release('/forgotten')});
is($b1->answer, 't', 'forgotten: the first runs');
$b1->query('COMMIT');
is($b3->answer, 'f', 'forgotten: the second, with an older tick, does not');
wait_for_state('/forgotten', 'done');
is($b3->query(xact_run_once('/forgotten', '2024-05-05 03:00Z')), 'f', 'forgotten: the tick of the first stays used up');
$b3->quit;

# A timeout that has passed.
$a1->query('BEGIN');
is($a1->query(xact_run_once('/retry', '2024-05-05 03:00Z')), 't', 'timeout: a runs');
is($b1->query(xact_run_once('/retry', '2024-05-05 03:00Z', q{timeout => '100 ms', retry => true})), 'f', 'timeout: b stood by');
$a1->query('COMMIT');
wait_for_state('/retry', 'done');

# On one server: the next backend does not overtake the end of the previous run.
foreach my $i (1 .. 20)
{
	my $tick = sprintf '2024-05-05 04:%02d:00Z', $i;
	$a1->query('BEGIN');
	is($a1->query(xact_run_once('/retry', $tick)), 't', "local $i: one runs");
	$a2->send(xact_run_once('/retry', $tick, 'timeout => NULL, retry => true'));
	$b1->send(xact_run_once('/retry', $tick, 'timeout => NULL, retry => true'));
	$node_a->wait_for_waiter('/retry', 1);
	$node_b->wait_for_waiter('/retry', 1);
	$a1->query('COMMIT');
	is($a2->answer . $b1->answer, 'ff', "local $i: and no other");
}

# --- answers get lost ---

foreach my $what ('requests', 'replies')
{
	my $path = "/lost $what";
	run_of_one_tick($a1, $path, '2024-05-05 02:00Z');

	# The answer to the whole call is lost.
	$b1->query('BEGIN');
	$proxy->hold($what);
	$b1->send(xact_run_once($path, '2024-05-05 03:00Z', q{timeout => '1min'}));
	$proxy->cut;
	is($b1->answer, 't', "lost $what: runs");
	is(field($path, q{server || ' ' || attempt || ' ' || state}), 'b 1 started', "lost $what: once");

	# The answer to the end of the run is lost, while another server waits to retry.
	$a1->send(xact_run_once($path, '2024-05-05 03:00Z', 'timeout => NULL, retry => true'));
	$node_a->wait_for_waiter($path, 1);
	$proxy->hold($what);
	$b1->query('COMMIT');
	wait_for_state($path, 'done') if $what eq 'replies';
	$proxy->cut;
	is($a1->answer, 'f', "lost $what: the next one finds that it is done");
	is(field($path, q{server || ' ' || attempt || ' ' || state}), 'b 1 done', "lost $what: still once");
}

# Cancelled before the write.
run_of_one_tick($a1, '/cancelled', '2024-05-05 02:00Z');
is($b1->query(q{SELECT zk_lock_acquire('/cancelled')}), 't', 'cancelled: holds the lock');
$proxy->hold('replies');
$b1->send(q{SET statement_timeout = '1 s'; } . run_once('/cancelled', '2024-05-05 03:00Z'));
is($b1->result->{errcode}, '57014', 'cancelled: by statement_timeout');
$proxy->cut;
$b1->query('RESET statement_timeout');
is($b1->query(run_once('/cancelled', '2024-05-05 02:00Z')), 'f', 'cancelled: the session goes on');
$b1->query(release('/cancelled'));
is($a1->query(run_once('/cancelled', '2024-05-05 03:00Z')), 't', 'cancelled: before the write, so the tick is not used up');
$a1->query(release('/cancelled'));

# --- the session is lost ---

run_of_one_tick($a1, '/expired', '2024-05-05 02:00Z');
$b1->query('BEGIN');
is($b1->query(xact_run_once('/expired', '2024-05-05 03:00Z')), 't', 'expired: runs');
$b1->query(q{INSERT INTO ran VALUES ('/expired', '2024-05-05 03:00Z')});
$node_b->expire_session($zk, by_hand => 1);
wait_for_state('/expired', 'failed');
is($b1->run('COMMIT')->{errcode}, 'ZK001', 'expired: does not commit');
is($a1->query(xact_run_once('/expired', '2024-05-05 03:00Z')), 'f', 'expired: used up');
$a1->query('BEGIN');
is($a1->query(xact_run_once('/expired', '2024-05-05 03:00Z', 'retry => true')), 't', 'expired: but not for a call that retries');
$a1->query('COMMIT');
wait_for_state('/expired', 'done');

# Another server takes the job over before the loser is back.
$b1->query('BEGIN');
is($b1->query(xact_run_once('/expired', '2024-05-05 04:00Z')), 't', 'taken over: b runs');
$b1->query(q{INSERT INTO ran VALUES ('/expired', '2024-05-05 04:00Z')});
my $epoch = $node_b->status('epoch');
my $worker = $node_b->worker_pid;
kill 'STOP', $worker;
$zk->kill_session($b2->query('SELECT session_id FROM zk_status'));
is($a1->query(run_once('/expired', '2024-05-05 04:00Z', q{timeout => '1min', retry => true})), 't', 'taken over: by a');
kill 'CONT', $worker;
$node_b->wait_until("SELECT epoch > $epoch FROM zk_status");
is($b1->run('COMMIT')->{errcode}, 'ZK001', 'taken over: b does not commit');
$node_b->wait_until_connected;
is(field('/expired', q{server || ' ' || attempt || ' ' || state}), 'a 2 started', 'taken over: and leaves the record alone');
$a1->query(release('/expired'));
wait_for_state('/expired', 'done');
is($b2->query('SELECT count(*) FROM ran'), '0', 'nothing of what was lost is there');

# --- records that zklock did not write, or that are gone ---

run_of_one_tick($a1, '/spoilt', '2024-05-05 02:00Z');
my $record = $zk->get("$records/spoilt")->{data};
foreach my $text ('', 'nonsense', $record =~ s/state=done/state=undone/r, $record . ('x' x 300), '127.0.0.1')
{
	$zk->set("$records/spoilt", $text);
	my $result = $a1->run(run_once('/spoilt', '2024-05-05 03:00Z'));
	is($result->{errcode}, 'XX001', 'a spoilt record is an error: ' . substr($text, 0, 20));
	is(field('/spoilt', 'state'), 'unreadable', 'and shown as such');
}
is($node_a->errcode(q{CREATE ROLE forgetful; GRANT pg_signal_backend TO forgetful; SET ROLE forgetful; SELECT zk_job_forget('/spoilt')}), '42501',
	'forget: what cannot be read may be of a superuser');
is($a1->query(q{SELECT zk_job_forget('/spoilt')}), 't', 'forget: there was one');
is($a1->query(q{SELECT zk_job_forget('/spoilt')}), 'f', 'forget: there is none');
is($a1->query(run_once('/spoilt', '2024-05-05 02:00Z')), 't', 'forget: it runs again');

# Forgotten while it runs.
is($b1->query(q{SELECT zk_job_forget('/spoilt')}), 't', 'forgotten while it runs');
$a1->query(release('/spoilt'));
$node_a->wait_until_clean('/spoilt');
ok(!$zk->exists("$records/spoilt"), 'the end of the run does not bring it back');

# Other clients may put anything there.
$zk->create("$records/%%", data => 'x');
$zk->create("$records/a%2F", data => $record);
$zk->create("$records/future", data => $record =~ s/tick=\d+/tick=9223372036854775807/r);
$zk->create("$records/past", data => $record =~ s/tick=\d+/tick=-9223372036854775808/r);
is(field('/past', q{tick IS NULL AND state = 'done'}), 't', 'a time that PostgreSQL does not have');
is($a2->query(q{SELECT count(*) FROM zk_jobs() WHERE path LIKE '%\%%' OR path LIKE '/a%'}), '0', 'foreign names are left out');
is($a1->query(run_once('/future', '2024-05-05 03:00Z')), 'f', 'a future tick that another client wrote');
$a1->query(q{SELECT zk_job_forget('/future')});
$zk->delete("$records/$_") foreach '%%', 'a%2F', 'past';

# --- the directory of a lock may not be read ---

run_of_one_tick($a1, '/closed', '2024-05-05 02:00Z');
$zk->allow('/zklock/closed', 'cdwa');
is($a2->query(q{SELECT state, holder_server FROM zk_jobs WHERE path = '/closed'}), 'done|', 'closed: the view leaves the holder out');
cmp_ok($a2->query('SELECT count(*) FROM zk_jobs'), '>', 1, 'closed: the other jobs are there');
$zk->allow('/zklock/closed', 'rcdwa');

# --- too many ---

my $count = @{ $zk->children($records) };
$node_b->set('zklock.max_jobs', $count + 1);
is($b1->query(run_once('/one more', '2024-05-05 02:00Z')), 't', 'max_jobs: one more');
my $result = $b1->run(run_once('/too many', '2024-05-05 02:00Z'));
is($result->{errcode}, '53400', 'max_jobs: and no more');
like($result->{err}, qr/too many jobs\n.*zk_job_forget/s, 'max_jobs: message');
is($b1->query(q{SELECT zk_lock_is_held('/too many')}), 'f', 'max_jobs: without the lock');
is($b1->query(run_once('/late', '2024-05-07 02:00Z')), 't', 'max_jobs: what there is can be run');
is($a1->query(q{SELECT zk_job_forget('/retry')}), 't', 'max_jobs: after one is removed');
is($b1->query(run_once('/too many', '2024-05-05 02:00Z')), 't', 'max_jobs: another can be made at once');
$b1->query('SELECT zk_lock_release_all()');
$node_b->set('zklock.max_jobs', 1000);

# --- ZooKeeper's time, where no ticket was made for a while ---

$node_c->wait_until(q{SELECT clock_timestamp() > claim_since + interval '11 s' FROM zk_locks WHERE path = '/old ticket'});
is($c1->errcode(run_once('/old ticket', '2035-01-01Z')), '22023', 'old ticket: a clock in 2035');
is_deeply($zk->children('/other/root/.zklock/jobs'), [], 'old ticket: uses nothing up');
is($c1->query(q{SELECT zk_run_once('/old ticket')}), 't', 'old ticket: runs');
is(scalar(@{ $zk->children('/other/root/.zklock/jobs') }), 1, 'old ticket: has a record');
$c1->query('SELECT zk_lock_release_all()');

# --- another kind of lock, and ZooKeeper away ---

is($a1->query(q{SELECT zk_semaphore_acquire('/other kind', 1)}), 't', 'a semaphore');
is($b1->errcode(run_once('/other kind', '2024-05-05 02:00Z')), 'ZK003', 'is no job');
$a1->query(q{SELECT zk_semaphore_release('/other kind')});
ok(!$zk->exists("$records/other kind"), 'and has no record');

# The connection is still there, but nothing is known of the tick.
$proxy->hold('requests');
is($b1->errcode(run_once('/late', '2024-05-08 02:00Z', q{'3 s'})), '08006', 'no reply until the time is over: an error');
$b1->query(q{SET lock_timeout = '500 ms'});
is($b1->errcode(run_once('/late', '2024-05-08 02:00Z')), '55P03', 'no reply until lock_timeout: an error');
$b1->query(q{RESET lock_timeout; SET zklock.connection_timeout = '500 ms'});
is($b1->errcode(run_once('/late', '2024-05-08 02:00Z')), '08006', 'without ZooKeeper: an error');
$proxy->cut;
$node_b->wait_until_connected;
$b1->query('RESET zklock.connection_timeout');
is($b1->query(run_once('/late', '2024-05-08 02:00Z')), 't', 'then it runs');

# --- the recipes, while ZooKeeper is away when the job is due ---

my $recipes = slurp_file("$FindBin::Bin/../../doc/recipes.md");
my ($minutes, $hour, $nightly) = $recipes =~ /cron\.schedule\('nightly', '(\S+) (\d+) \* \* \*', \$\$ (.*?) \$\$\)/;
my ($patience, $billing) = $recipes =~ /^BEGIN;\n(SET LOCAL zklock\.connection_timeout = .*?;)\n(SELECT zk_xact_run_once\('\/jobs\/billing'.*?;)/m;
$_->safe_psql('postgres', q{CREATE FUNCTION nightly() RETURNS void LANGUAGE sql AS $$ INSERT INTO ran VALUES ('nightly') $$}) foreach $node_a, $node_b;

# ZooKeeper is silent for longer than a call waits by default.
sub outage
{
	my ($calls) = @_;
	$_->query(q{SET zklock.connection_timeout = '500 ms'}) foreach $a1, $b1;
	$zk->pause;
	$calls->();
	$zk->resume;
	$_->wait_until_connected foreach $node_a, $node_b;
	$_->query('RESET zklock.connection_timeout') foreach $a1, $b1;
	return;
}

# What the schedulers of both servers do at that minute of a night.
sub call_nightly
{
	my ($day, $minute) = @_;
	my $tick = sprintf '2024-05-%02d %02d:%02d:00Z', $day, $hour, $minute;
	return map { $_->run($nightly =~ s/(zk_xact_run_once\('.*?')/$1, '$tick'/r)->{errcode} } $a1, $b1;
}

my ($first, @later) = $minutes =~ /^\*\/(\d+)$/ ? map { $_ * $1 } 0 .. 59 / $1 : $minutes;
my $nights = sub { my $sql = q{SELECT count(*) FROM ran WHERE path = 'nightly'}; return $a1->query($sql) + $b1->query($sql); };
outage(sub { is_deeply([ call_nightly(6, $first) ], [ '08006', '08006' ], 'recipe, outage: no server can run the job') });
is($nights->(), 0, 'recipe, outage: and neither runs it');
is_deeply([ call_nightly(6, $_) ], [ '', '' ], "recipe: minute $_") foreach @later;
is($nights->(), 1, 'recipe, outage: a later call of the same night runs it, once');
call_nightly(7, $_) foreach $first, @later;
is($nights->(), 2, 'recipe: once in the next night');

is($a1->query("BEGIN; $patience $billing"), 't', 'recipe for standing by: a runs');
$b2->send("BEGIN; $patience $billing");
$node_b->wait_for_waiter('/jobs/billing', 1);
my $latecomer = $node_b->backend;
outage(sub {
	$latecomer->send("BEGIN; $patience $billing");
	is($b1->errcode($billing), '08006', 'recipe for standing by, outage: fails without the setting');
});
ok(!$_->is_done, 'recipe for standing by, outage: with it, a caller waits') foreach $b2, $latecomer;
$a1->query('ROLLBACK');
is($b2->answer . $latecomer->is_done, 't', 'recipe for standing by, outage: and takes over');
$b2->query('ROLLBACK');
is($latecomer->answer, 't', 'recipe for standing by, outage: so does a caller that came meanwhile');
$latecomer->query('COMMIT');
$latecomer->quit;

# --- a server stops, or dies ---

is($b2->query(run_once('/stopped', '2024-05-05 02:00Z')), 't', 'b runs two jobs');
$node_b->stop('fast');
is(field($_, 'state'), 'failed', "a stop ends its runs: $_") foreach '/late', '/stopped';
$node_b->start;
$node_b->wait_until_connected;
($b1, $b2) = map { $node_b->backend } 1, 2;

# The end of a run is sent before the ticket's delete.
foreach my $i (1 .. 12)
{
	my $path = "/ends/$i";
	$b1->query('BEGIN');
	is($b1->query(xact_run_once($path, '2024-05-05 02:00Z')), 't', "$path: runs");
	$a1->send(xact_run_once($path, '2024-05-05 02:00Z', 'timeout => NULL, retry => true'));
	$node_a->wait_for_waiter($path, 1);
	$b1->query('COMMIT');
	is($a1->answer, 'f', "$path: and not again");
}

is($b1->query(run_once('/dead', '2024-05-05 02:00Z')), 't', 'b runs');
my $shown = q{SELECT state, duration >= '0', holder_server FROM zk_jobs WHERE path = '/dead'};
is($a1->query($shown), 'started|t|b', 'which the view shows');
my @sessions = split /\n/, $node_b->safe_psql('postgres', 'SELECT session_id FROM zk_sessions');
$node_b->kill9_all;
is(field('/dead', 'state'), 'started', 'and dies');
$zk->kill_session($_) foreach @sessions;
$zk->wait_until(sub { $a1->query($shown) eq 'started||' }, 'the view to show a run that no session carries on');
is($a1->query(run_once('/dead', '2024-05-05 02:00Z', q{timeout => '1min'})), 'f', 'used up');
is($a1->query(run_once('/dead', '2024-05-05 02:00Z', q{timeout => '1min', retry => true})), 't', 'taken over');
is($a1->query(release('/dead')), 't', 'released');
wait_for_state('/dead', 'done');

# --- a standby ---

my $node_s = ZklockNode->standby('standby', $node_a);
$node_s->wait_until_connected;
my $s1 = $node_s->backend;
is($s1->errcode(xact_run_once('/standby', '2024-05-05 02:00Z')), '25006', 'a transaction on a standby does not use up a tick');
is($s1->query(q{SELECT errors FROM zk_stat_errors() WHERE sqlstate = '25006'}), 1, 'which is counted');
is($s1->query(run_once('/standby', '2024-05-05 02:00Z')), 't', 'a session on a standby runs a job');
is($a1->query(xact_run_once('/standby', '2024-05-05 02:00Z')), 'f', 'and the primary does not');
$s1->query(release('/standby'));
wait_for_state('/standby', 'done');
is(field('/standby', 'server'), 'standby', 'the record names it');
my $used = $s1->run(xact_run_once('/standby', '2024-05-05 02:00Z'));
is($used->{errcode} || $used->{out}, 'f', 'a used tick stays used on a standby');
$a1->query('BEGIN READ ONLY');
is($a1->query(xact_run_once('/export', '2024-05-05 02:00Z')), 't', 'a read-only transaction on a primary runs a job');
$a1->query('COMMIT');
my $guarded = q{SELECT 'here' WHERE CASE WHEN NOT pg_is_in_recovery() THEN zk_xact_run_once('/guarded', '2024-05-05 02:00Z') END};
is($s1->query($guarded), '', 'with the guard of doc/recipes.md, it does not run');
is($a1->query($guarded), 'here', 'and the primary does');

$_->quit foreach $a1, $a2, $c1, $s1;
done_testing();
