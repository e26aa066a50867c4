
# ZooKeeper is away: when the server starts, later, for good, or only silent.

use strict;
use warnings;

use IO::Socket::INET;
use POSIX ();

use ZklockTest;

# The session outlives every outage in here, and stays safe for more than half of its timeout.
my $zk = ZooKeeper->new(start => 0);
my %settings =
  ('zklock.session_timeout' => '30s', 'zklock.connection_timeout' => '4s', 'zklock.linger' => 0);
my $servers = $zk->hosts;

# On however slow a machine, no backend waits longer than this for a result that ought to come at
# once.  What it must not wait for takes two minutes, where a test says "in time" or "at once".
my $soon = 30;
sub be_patient { my ($backend) = @_; return $backend->query(q{SET zklock.connection_timeout = '2min'}); }

sub is_unreachable
{
	my ($result, $hosts, $what, $why) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($result->{errcode}, '08006', "$what: error");
	like($result->{err}, qr/DETAIL:.*\Q$hosts\E/, "$what: names the servers");
	like($result->{err}, qr/DETAIL:.*\.  $why\.\n.*HINT:  Check that ZooKeeper is running/s, "$what: says why") if $why;
	return;
}

# --- away when the server starts ---

my $node_a = ZklockNode->initialized('a', $zk, %settings);
$node_a->start;
$node_a->safe_psql('postgres', 'CREATE EXTENSION zklock; CREATE TABLE t (v text)');
is($node_a->status('state'), 'none', 'the server serves SQL without ZooKeeper');

my $a1 = $node_a->backend;
my $a2 = $node_a->backend;
my $a2_pid = $a2->pid;
my $result;

be_patient($a2);
$a1->send(acquire('/start'));
$result = $a2->run(acquire('/start2', '1s'));
is_unreachable($result, $servers, 'timeout', qr/The last error was: server \Q$servers\E refused the connection/);
cmp_ok($result->{seconds}, '>=', 1, 'timeout: not before it is over');
cmp_ok($result->{seconds}, '<', 1 + $soon, 'timeout: no later');

$result = $a1->result;
is_unreachable($result, $servers, 'no timeout');
cmp_ok($result->{seconds}, '>=', 4, 'no timeout: not before zklock.connection_timeout');
cmp_ok($result->{seconds}, '<', 4 + $soon, 'no timeout: no later');

be_patient($a1);
$result = $a1->run(try('/start'));
is_unreachable($result, $servers, 'a try');
cmp_ok($result->{seconds}, '<', $soon, 'a try: at once');
$result = $a1->run(q{SELECT zk_run_once('/start')});
is_unreachable($result, $servers, 'a job');
cmp_ok($result->{seconds}, '<', $soon, 'a job: at once, too');
$result = $a1->run(q{SELECT zk_run_once('/start', timeout => '1s')});
is_unreachable($result, $servers, 'a job with a timeout');
cmp_ok($result->{seconds}, '>=', 1, 'a job with a timeout: not before it is over');
cmp_ok($result->{seconds}, '<', 1 + $soon, 'a job with a timeout: no later');
$a1->query(q{SET lock_timeout = '500ms'});
is($a1->errcode(acquire('/start')), '55P03', 'lock_timeout comes first');
is($a1->errcode(q{SELECT zk_run_once('/start', timeout => '1min')}), '55P03', 'lock_timeout comes first for a job, too');
$a1->query(q{RESET lock_timeout; SET statement_timeout = '500ms'});
is($a1->errcode(acquire('/start')), '57014', 'statement_timeout comes first');
$a1->query(q{RESET statement_timeout});

# A backend that only looks, or removes a record, does not wait for an answer that cannot come.
foreach my $look ([ q{SELECT * FROM zk_lock_queue('/start')} => 'lock "/start"' ],
	[ q{SELECT zk_semaphore_limit('/start')} => 'lock "/start"' ],
	[ q{SELECT zk_job_forget('/start')} => 'the records of jobs' ],
	[ q{SELECT zk_leader_forget('/start')} => 'the records of leaderships' ],
	[ 'SELECT * FROM zk_jobs' => 'the records of jobs' ],
	[ 'SELECT * FROM zk_waits' => 'the records of waits' ])
{
	$result = $a1->run($look->[0]);
	is_unreachable($result, $servers, $look->[0], qr/The last error was: server \Q$servers\E refused the connection/);
	like($result->{err}, qr/could not access $look->[1]: ZooKeeper cannot be reached/, 'what it wanted');
	cmp_ok($result->{seconds}, '<', $soon, 'soon, whatever zklock.connection_timeout is');
}

$node_a->wait_until(q{SELECT count(*) = 0 FROM zk_locks});

# ZooKeeper comes while a backend waits.
$a1->send(acquire('/start'));
$node_a->wait_for_waiter('/start', 1);
$zk->start;
is($a1->result->{out}, 't', 'a backend that waited long enough gets the lock when ZooKeeper comes');
is_deeply([ grep { /lock-/ } @{ $zk->tree('/zklock') } ],
	[ '/zklock/start/' . $zk->children('/zklock/start')->[0] ],
	'no other znode was made');
$a1->query(release('/start'));

# --- away while locks are held and waited for ---

my $node_b = ZklockNode->started('b', $zk, %settings);
my $b1 = $node_b->backend;
my $b2 = $node_b->backend;
my $b1_pid = $b1->pid;
be_patient($_) foreach $a1, $a2, $b1, $b2;

$node_a->wait_until_connected;
is($a1->query(acquire('/held')), 't', 'held');
my $token = $a1->query(token('/held'));
my $znode = $zk->children('/zklock/held')->[0];
$a2->send(acquire('/held'));
$node_a->wait_for_waiter('/held', 1);
$b1->send(acquire('/held'));
my $queue = $zk->wait_for_children('/zklock/held', 2);
my @sessions = map { $_->status('session_id') } $node_a, $node_b;

$zk->stop;
$_->wait_until_away foreach $node_a, $node_b;
is($a1->query(held('/held')), 't', 'held while ZooKeeper is away');
is($a1->query(try('/held')), 't', 'and can be acquired again');
is($a1->query(token('/held')), $token, 'with the same token');
is($a1->query(q{INSERT INTO t VALUES ('away'); SELECT v FROM t}), 'away', 'and guards a commit');
$b2->send(acquire('/new'));
$node_b->wait_for_waiter('/new', 1);
$zk->start;
$_->wait_until_connected foreach $node_a, $node_b;

is_deeply([ map { $_->status('session_id') } $node_a, $node_b ], \@sessions, 'back: the same sessions');
is($b2->result->{out}, 't', 'back: the one that came meanwhile gets the lock');
is_deeply($zk->children('/zklock/held'), $queue, 'back: the same queue');
is($a1->query(held('/held')), 't', 'back: still held');
is($a1->query(token('/held')), $token, 'back: the same token');
ok(!$a2->is_done && !$b1->is_done, 'back: others still wait');

$a1->query(q{SELECT zk_lock_release_all()});
is($b1->result->{out}, 't', 'back: the waiter of the other server gets the lock');
$b1->query(release('/held'));
is($a2->result->{out}, 't', 'back: the waiter of the same server gets the lock');
cmp_ok($a2->query(token('/held')), '>', $token, 'back: tokens grow');
$a2->query(q{SELECT zk_lock_release_all()});
$b2->query(q{SELECT zk_lock_release_all()});
is(scalar(@{ $zk->wait_for_children('/zklock/held', 0) }), 0, 'back: nothing is left');
$zk->wait_for_children('/zklock/new', 0);

# --- waits that end while it is away ---

$a1->query(acquire('/held'));
$a2->send(acquire('/held', '8s'));
$b1->send(acquire('/held', '8s'));
$zk->wait_for_children('/zklock/held', 2);
$zk->stop;
$_->wait_until_away foreach $node_a, $node_b;
$b2->send(acquire('/held', '1s'));
$result = $b1->result;
is_unreachable($result, $servers, 'a wait that ends meanwhile');
cmp_ok($result->{seconds}, '>=', 8, 'a wait that ends meanwhile: not before its timeout');
cmp_ok($result->{seconds}, '<', 8 + $soon, 'a wait that ends meanwhile: no later');
$result = $b2->result;
cmp_ok($result->{seconds}, '<', 8 + $soon, 'a wait behind another of the same server ends');
isnt($result->{out}, 't', 'and without the lock');
$result = $a2->result;
isnt($result->{out}, 't', 'a wait behind the holder of the same server ends without the lock');
cmp_ok($result->{seconds}, '<', 8 + $soon, 'and in time');
is($b1->query('SELECT count(*) FROM zk_locks WHERE claim IS NOT NULL'), '0', 'no claim is left');
is($a1->query(held('/held')), 't', 'the holder holds on');

# So do waits that are cancelled, and waits of backends that are terminated.
$a2->send(acquire('/held'));
$b1->send(acquire('/new'));
my $ended = $node_b->backend;
my $ended_pid = $ended->pid;
be_patient($ended);
$ended->send(acquire('/new2'));
$node_a->wait_for_waiter('/held', 1);
$node_b->wait_for_waiter('/new', 1);
$node_b->wait_for_waiter('/new2', 1);
$a1->query("SELECT pg_cancel_backend($a2_pid)");
$b2->query("SELECT pg_cancel_backend($b1_pid), pg_terminate_backend($ended_pid)");
is($a2->result->{errcode}, '57014', 'cancelled while away');
is($b1->result->{errcode}, '57014', 'cancelled while away, in the queue');
is($ended->result->{errcode}, '57P01', 'terminated while away');
$node_b->wait_until(q{SELECT count(*) = 0 FROM zk_locks WHERE path <> '/held'});

# A commit, a release and the end of a backend do not wait either.
my $leaver = $node_a->backend;
$zk->start;
$_->wait_until_connected foreach $node_a, $node_b;
is(scalar(@{ $zk->wait_for_children('/zklock/held', 1) }), 1, 'back: none of their znodes is left');

$a2->query(q{BEGIN; SELECT zk_xact_lock_acquire('/commit'); INSERT INTO t VALUES ('commit')});
$b1->query(q{BEGIN; SELECT zk_xact_lock_acquire('/abort')});
$b2->query(acquire('/release'));
$leaver->query(acquire('/leave'));
$zk->stop;
$_->wait_until_away foreach $node_a, $node_b;
$result = $a2->run('COMMIT');
is($result->{err}, '', 'COMMIT while away');
cmp_ok($result->{seconds}, '<', $soon, 'COMMIT while away: at once');
cmp_ok($b1->run('ROLLBACK')->{seconds}, '<', $soon, 'ROLLBACK while away: at once');
$result = $b2->run(release('/release'));
is($result->{out}, 't', 'release while away');
cmp_ok($result->{seconds}, '<', $soon, 'release while away: at once');
$leaver->quit;

$a1->query(q{SET zklock.synchronous_release = on; SET zklock.connection_timeout = '1s'});
$result = $a1->run(release('/held'));
is($result->{out}, 't', 'synchronous release while away');
cmp_ok($result->{seconds}, '<', 1 + $soon, 'synchronous release while away: not for long');
is($a2->query(q{SELECT v FROM t WHERE v = 'commit'}), 'commit', 'what was committed is there');

$zk->start;
foreach my $name (qw(commit abort release leave held))
{
	is(scalar(@{ $zk->wait_for_children("/zklock/$name", 0) }), 0, "back: /$name is free");
}
$_->wait_until_connected foreach $node_a, $node_b;
is($node_a->status('session_id'), $sessions[0], 'back: still the same session');

# --- synchronous release ---

my $left = 0;
foreach my $i (1 .. 10)
{
	$a1->query(qq{SELECT zk_lock_acquire('/sync$i')});
	$a1->query(qq{SELECT zk_lock_release('/sync$i')});
	$left += @{ $zk->children("/zklock/sync$i") };
	$a1->query(qq{BEGIN; SELECT zk_xact_lock_acquire('/sync$i')});
	$a1->query('COMMIT');
	$left += @{ $zk->children("/zklock/sync$i") };
}
is($left, 0, 'synchronous release: the znode is gone afterwards');

# --- silent ---

$a1->query(acquire('/silent'));
$b1->send(acquire('/silent'));
$zk->wait_for_children('/zklock/silent', 2);
$a1->query(acquire('/sync'));
$b2->query(acquire('/taken'));

# A semaphore that needs a second look, while its inner mutex lingers.
$node_a->set('zklock.linger', '1h');
$a2->query(q{SELECT zk_semaphore_acquire('/sem', 2), zk_semaphore_release('/sem')}) foreach 1 .. 3;
$zk->delete("/zklock/sem/leases/$_") foreach @{ $zk->children('/zklock/sem/leases') };
$node_a->wait_until(q{SELECT array_agg(path) = '{/sem/locks}' FROM zk_locks WHERE path LIKE '/sem%'});

$a2->query(q{SET zklock.synchronous_release = on});
# A multilock first tries all locks, with tickets whose names say so, and then waits with other tickets.
$a2->send(q{SELECT zk_multilock_acquire('{/free, /taken}', '6s')});
$zk->wait_until(sub { 2 == grep { !/-8b4d-/ } @{ $zk->children('/zklock/taken') } }, 'the ticket with which it waits');
$node_a->wait_for_ticket('/taken', 'queued');
my $several = $node_a->backend;
$several->query(q{SET zklock.synchronous_release = on; SET zklock.connection_timeout = '1s'; BEGIN});
$several->query("SELECT zk_xact_lock_acquire('/several' || i) FROM generate_series(1, 120) i");
my %try = (lock => try('/tried'), job => q{SELECT zk_run_once('/tried job')}, semaphore => q{SELECT zk_semaphore_acquire('/tried leases', 2, '0')});
my %trier = map { $_ => $node_b->backend } keys %try;
be_patient($_) foreach values %trier;
$zk->pause;
$trier{$_}->send($try{$_}) foreach keys %try;
$result = $a1->run(release('/sync'));
is($result->{out}, 't', 'silent: synchronous release');
cmp_ok($result->{seconds}, '>=', 1, 'silent: waits');
cmp_ok($result->{seconds}, '<', 1 + $soon, 'silent: but not for long');
$result = $several->run('COMMIT');
is($result->{errcode}, '', 'silent: synchronous release of several');
cmp_ok($result->{seconds}, '<', 1 + $soon, 'silent: does not wait for each in turn');
$several->quit;
$result = $a2->result;
is($result->{out}, 'f', 'silent: a multilock that has one of two');
cmp_ok($result->{seconds}, '<', 6 + $soon, 'silent: does not wait to be rid of it');
$result = $a2->run(q{RESET zklock.synchronous_release; SET lock_timeout = '500ms'; SELECT zk_semaphore_acquire('/sem', 2)});
is($result->{errcode}, '55P03', 'silent: lock_timeout while it looks at a semaphore');
cmp_ok($result->{seconds}, '<', 0.5 + $soon, 'silent: in time');
$a2->query(q{RESET lock_timeout});
$node_a->set('zklock.linger', 0);
$b2->query(release('/taken'));
$a1->query(q{RESET zklock.synchronous_release});
be_patient($a1);
$b2->send(acquire('/silent', '2s'));
$result = $a2->run(acquire('/unanswered', '2s'));
is_unreachable($result, $servers, 'silent');
cmp_ok($result->{seconds}, '<', 2 + $soon, 'silent: in time');
$result = $b2->result;
isnt($result->{out}, 't', 'silent: a wait in the queue ends');
cmp_ok($result->{seconds}, '<', 2 + $soon, 'silent: in time');
$a2->send(acquire('/cancelled'));
$node_a->wait_for_waiter('/cancelled', 1);
$a1->query('SELECT pg_cancel_backend(' . $a2_pid . ')');
is($a2->result->{errcode}, '57014', 'silent: a wait can be cancelled');
my %tried = map { $_ => $trier{$_}->result } keys %try;
is($tried{$_}{errcode}, '08006', "silent: a try for a $_") foreach sort keys %try;
# Ask the server for their ends, because the results are only read now.
my $pids = join ',', map { $_->pid } values %trier;
my @ends = split /\n/, $node_b->safe_psql('postgres', "SELECT extract(epoch FROM state_change) FROM pg_stat_activity WHERE pid IN ($pids) ORDER BY 1");
cmp_ok($ends[-1] - $ends[0], '<', 3, 'silent: all kinds of tries end at the same time') or diag("@ends");
$_->quit foreach values %trier;
$zk->resume;
$node_a->wait_until(q{SELECT count(*) = 0 FROM zk_locks WHERE path IN ('/unanswered', '/cancelled')});
is(scalar(@{ $zk->children('/zklock/unanswered') }), 0, 'resumed: no znode is left');
is(scalar(@{ $zk->children('/zklock/cancelled') }), 0, 'resumed: nor one of the cancelled wait');
$a1->query(release('/silent'));
is($b1->result->{out}, 't', 'resumed: the waiter gets the lock');
$b1->query(release('/silent'));
is($node_a->status('session_id'), $sessions[0], 'resumed: still the same session');

# --- no such host, and strangers on the port ---

$b1->quit;
$b2->quit;
$node_b->configure('zklock.hosts' => 'no-such-host.invalid:2181');
$node_b->restart;
$b1 = $node_b->backend;
be_patient($b1);
$result = $b1->run(acquire('/host', '1s'));
is_unreachable($result, 'no-such-host.invalid:2181', 'no such host',
	qr/The last error was: could not resolve any of the servers: "no-such-host\.invalid": \w.*/);
cmp_ok($result->{seconds}, '<', 1 + $soon, 'no such host: in time');
is(kill(0, $node_b->worker_pid), 1, 'no such host: the worker lives');
cmp_ok($b1->run('SELECT * FROM zk_jobs')->{seconds}, '<', $soon, 'no such host: a view does not wait');

my @strangers;

sub stranger
{
	my ($answer) = @_;
	my $listener = IO::Socket::INET->new(Listen => 10, LocalAddr => '127.0.0.1')
	  or die "could not listen: $!";
	my $pid = fork;
	die "could not fork: $!" unless defined $pid;
	if ($pid == 0)
	{
		my @kept;
		while (my $client = $listener->accept)
		{
			next unless defined $answer;	# closes
			push @kept, $client;
			syswrite $client, $answer;
		}
		POSIX::_exit(0);
	}
	push @strangers, $pid;
	return '127.0.0.1:' . $listener->sockport;
}

END
{
	my $status = $?;
	kill 'KILL', @strangers if @strangers;
	waitpid $_, 0 foreach @strangers;
	$? = $status;
}

sub cpu_ticks
{
	my ($pid) = @_;
	my @stat = split / /, slurp_file("/proc/$pid/stat") =~ s/.*\) //sr;
	return $stat[11] + $stat[12];
}

my %stranger = (
	'one who hangs up' => stranger(undef),
	'one who is silent' => stranger(''),
	'a web server' => stranger("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"),
	'negative length' => stranger("\xff\xff\xff\xff" . 'x' x 100),
	'zeros' => stranger("\0" x 400));

foreach my $who (sort keys %stranger)
{
	my $why = $who =~ /silent/ ? qr/None of them has answered yet/ :
	  $who =~ /hangs up/ ? qr/The last error was: server \Q$stranger{$who}\E closed the connection/ :
	  qr/The last error was: server \Q$stranger{$who}\E does not answer like a ZooKeeper server/;
	$b1->quit;
	$node_b->configure('zklock.hosts' => $stranger{$who});
	$node_b->restart;
	my $known = $who =~ /silent/ ? 'worker_pid' : 'last_error';
	$node_b->wait_until("SELECT $known IS NOT NULL FROM zk_status");
	$b1 = $node_b->backend;
	be_patient($b1);

	my $worker = $node_b->worker_pid;
	my $ticks = cpu_ticks($worker);
	$result = $b1->run(acquire('/stranger', '2s'));
	is_unreachable($result, $stranger{$who}, $who, $why);
	cmp_ok($result->{seconds}, '<', 2 + $soon, "$who: in time");
	is($node_b->worker_pid, $worker, "$who: the worker lives");
	cmp_ok(cpu_ticks($worker) - $ticks, '<', 50, "$who: the worker is idle");
}

$node_b->configure('zklock.hosts' => join(',', (map { $stranger{$_} } sort keys %stranger), $servers));
$node_b->reload;
$node_b->wait_until_connected;
is($b1->query(acquire('/stranger')), 't', 'the right one among them is found');
is($node_b->status('server'), $servers, 'and no other');

# The client tries the addresses in random order, so half of these meet the stranger first.  (A
# stranger that answers with some other session's id tells the client that ours has expired, and the
# client believes that.  That is safe, but it costs the locks.)
foreach my $who ('one who hangs up', 'one who is silent')
{
	my $at = -s $node_b->logfile;
	$node_b->configure('zklock.hosts' => "$stranger{$who},$servers");
	$node_b->reload;
	$node_b->wait_for_log(qr/"zklock.hosts" was changed.*connected to ZooKeeper server/s, $at);
	is($b1->query(held('/stranger')), 't', "$who: costs no lock");
}

$_->quit foreach $a1, $a2, $b1;
$node_b->stop;
$node_a->stop;
is_deeply([ grep { /lock-/ } @{ $zk->tree('/zklock') } ], [], 'nothing is left in the end');

done_testing();
