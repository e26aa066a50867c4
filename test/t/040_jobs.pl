
# Jobs: once a tick, on two servers, whatever the schedulers' clocks say and whoever dies.

use strict;
use warnings;

use Test::More;

use PostgreSQL::Test::Utils;

use HoldingProxy;
use ZklockNode;
use ZooKeeper;

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
sub release { my ($path) = @_; return "SELECT zk_lock_release('$path')"; }
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

sub requests { my ($node) = @_; return $node->status('requests'); }

# How many requests a call costs that begins a transaction.  The end of the transaction
# waits until nothing is left of it.  (The count is read at once: a lock that is held for
# longer costs a watch.)
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

# For later: a ticket that is old by then, below another root, where there are no records.
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

# A run goes on: no other begins, not even of a later tick, unless it waits.
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
my $cold = cost('/cost', q{zk_xact_lock_acquire('/cost')});
is(cost('/cost', q{zk_xact_run_once('/cost', '2024-05-05 03:00Z')}), $cold + 2,
	"a new tick costs two requests more than the lock ($cold)");
my $before = requests($node_a);
is($a1->query(xact_run_once('/cost', '2024-05-05 03:00Z')), 'f', 'a used tick');
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

%ends = (
	'release' => [ 'done', sub { $_[0]->query('SELECT zk_lock_release_all()') } ],
	'quit' => [ 'done', sub { $_[0]->quit } ],
	'error, quit' => [ 'failed', sub { $_[0]->run('SELECT 1/0'); $_[0]->quit; } ],
	'transaction, quit' => [ 'failed', sub { $_[0]->query('BEGIN'); $_[0]->quit; } ],
	'client' => [ 'failed', sub { $_[0]->kill_client } ],
	'terminated' => [ 'failed', sub { $b2->query('SELECT pg_terminate_backend(' . $_[0]->pid . ')') } ]);
foreach my $end (sort keys %ends)
{
	my $runner = $node_b->backend;
	is($runner->query(run_once("/session/$end", '2024-05-05 02:00Z')), 't', "session, $end: runs");
	$ends{$end}[1]->($runner);
	wait_for_state("/session/$end", $ends{$end}[0]);
	pass("session, $end: the record says $ends{$end}[0]");
	$runner->quit if $end eq 'release';
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
is($b1->query(xact_run_once('/retry', '2024-05-05 02:00Z', q{timeout => '0', retry => true})), 'f', 'retry: nobody does any more');

# Forgotten while callers wait: a run that has ended since is not overwritten.
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

# A timeout that is over.
$a1->query('BEGIN');
is($a1->query(xact_run_once('/retry', '2024-05-05 03:00Z')), 't', 'timeout: a runs');
is($b1->query(xact_run_once('/retry', '2024-05-05 03:00Z', q{timeout => '100 ms', retry => true})), 'f', 'timeout: b stood by');
$a1->query('COMMIT');
wait_for_state('/retry', 'done');

# On one server: the next backend does not overtake the end of the run before.
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

	# Of the whole call.
	$b1->query('BEGIN');
	$proxy->hold($what);
	$b1->send(xact_run_once($path, '2024-05-05 03:00Z', q{timeout => '1min'}));
	$proxy->cut;
	is($b1->answer, 't', "lost $what: runs");
	is(field($path, q{server || ' ' || attempt || ' ' || state}), 'b 1 started', "lost $what: once");

	# Of the end, while another server waits to retry.
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
is($a1->query(xact_run_once('/expired', '2024-05-05 03:00Z', 'retry => true')), 't', 'expired: but not for one that retries');
$a1->query('COMMIT');
wait_for_state('/expired', 'done');

# Taken over by another server before the loser is back.
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
is($a1->query(q{SELECT zk_job_forget('/spoilt')}), 't', 'forget: there was one');
is($a1->query(q{SELECT zk_job_forget('/spoilt')}), 'f', 'forget: there is none');
is($a1->query(run_once('/spoilt', '2024-05-05 02:00Z')), 't', 'forget: it runs again');

# Forgotten while it runs.
is($b1->query(q{SELECT zk_job_forget('/spoilt')}), 't', 'forgotten while it runs');
$a1->query(release('/spoilt'));
$node_a->wait_until_clean('/spoilt');
ok(!$zk->exists("$records/spoilt"), 'the end of the run does not bring it back');

# Others may put anything there.
$zk->create("$records/%%", data => 'x');
$zk->create("$records/a%2F", data => $record);
$zk->create("$records/future", data => $record =~ s/tick=\d+/tick=9223372036854775807/r);
$zk->create("$records/past", data => $record =~ s/tick=\d+/tick=-9223372036854775808/r);
is(field('/past', q{tick IS NULL AND state = 'done'}), 't', 'a time that PostgreSQL does not have');
is($a2->query(q{SELECT count(*) FROM zk_jobs() WHERE path LIKE '%\%%' OR path LIKE '/a%'}), '0', 'foreign names are left out');
is($a1->query(run_once('/future', '2024-05-05 03:00Z')), 'f', 'a future that somebody wrote');
$a1->query(q{SELECT zk_job_forget('/future')});
$zk->delete("$records/$_") foreach '%%', 'a%2F', 'past';

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

$b1->query(q{SET zklock.connection_timeout = '500 ms'});
$proxy->hold('requests');
is($b1->errcode(run_once('/late', '2024-05-08 02:00Z')), '08006', 'without ZooKeeper: an error');
$proxy->cut;
$node_b->wait_until_connected;
$b1->query('RESET zklock.connection_timeout');
is($b1->query(run_once('/late', '2024-05-08 02:00Z')), 't', 'then it runs');

# --- a server stops, or dies ---

is($b2->query(run_once('/stopped', '2024-05-05 02:00Z')), 't', 'b runs two jobs');
$node_b->stop('fast');
is(field($_, 'state'), 'failed', "a stop ends its runs: $_") foreach '/late', '/stopped';
$node_b->configure('zklock.sessions' => 3, 'zklock.session_timeout' => '4s');
$node_b->start;
$node_b->wait_until_connected;
($b1, $b2) = map { $node_b->backend } 1, 2;

# With several sessions, the end of a run still goes before the ticket.
foreach my $i (1 .. 12)
{
	my $path = "/sessions/$i";
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
$node_b->kill9_all;
is(field('/dead', 'state'), 'started', 'and dies');
$zk->wait_until(sub { $a1->query($shown) eq 'started||' }, 'the view to show a run that nobody goes on with');
is($a1->query(run_once('/dead', '2024-05-05 02:00Z', q{timeout => '1min'})), 'f', 'used up');
is($a1->query(run_once('/dead', '2024-05-05 02:00Z', q{timeout => '1min', retry => true})), 't', 'taken over');
is($a1->query(release('/dead')), 't', 'released');
wait_for_state('/dead', 'done');

# --- a standby ---

my $node_s = ZklockNode->standby('standby', $node_a);
$node_s->wait_until_connected;
my $s1 = $node_s->backend;
$s1->query('BEGIN');
is($s1->query(xact_run_once('/standby', '2024-05-05 02:00Z')), 't', 'a standby runs');
is($a1->query(xact_run_once('/standby', '2024-05-05 02:00Z')), 'f', 'and the primary does not');
$s1->query('COMMIT');
wait_for_state('/standby', 'done');
is(field('/standby', 'server'), 'standby', 'the record names it');

$_->quit foreach $a1, $a2, $c1, $s1;
done_testing();
