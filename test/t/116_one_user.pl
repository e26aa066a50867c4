
# One user cannot stop the others: however much one role requests at once, the next lock of another
# role does not wait long, its bulk work does not stand before another role's request, and no role can
# take all that there is.

use strict;
use warnings;

use List::Util qw(max sum0);
use Time::HiRes qw(time);

use ZklockTest qw(!acquire !release);

my $zk = ZooKeeper->new;
my $node = ZklockNode->started('n', $zk,
	'zklock.session_timeout' => '60s',
	'zklock.connection_timeout' => '2s',
	'max_connections' => 100,
	'zklock.linger' => 0,
	'max_locks_per_transaction' => 256);
$node->safe_psql('postgres', 'CREATE ROLE abuser LOGIN; CREATE ROLE victim LOGIN');
my $abuser = $node->backend(extra_params => [ '-U', 'abuser' ]);
my $victim = $node->backend(extra_params => [ '-U', 'victim' ]);
my $holder = $node->backend;

sub acquire { my ($path, $n) = @_; return "SELECT zk_semaphore_acquire('$path', $n, '1min', $n)"; }
sub release { my ($path, $n) = @_; return "SELECT zk_semaphore_release('$path', $n)"; }

# --- what leases cost ---------------------------------------------------------------------

# Each lease costs a create, a delete, and if it is held for a while, a watch on its own znode and the
# end of that; the lists and everything else do not grow with their number.
my %others;
foreach my $n (10, 100, 400)
{
	my $path = "/cost/$n";
	$node->wait_until('SELECT entries = 0 FROM zk_status');
	my ($requests, $tickets) = split /\|/, $node->status('requests, tickets');
	my $cpu = $node->worker_cpu;
	is($holder->query(acquire($path, $n)), 't', "$n leases");
	$zk->wait_until(sub { $zk->cmd('mntr') =~ /zk_watch_count\s+(\d+)/ && $1 == $n + 3 },
		"$n leases: a watch on each znode, one on the directory, and two about the server");
	is($holder->query(release($path, $n)), 't', "$n leases: released");
	$zk->wait_for_children("/zklock$path/leases", 0);
	$node->wait_until('SELECT entries = 0 FROM zk_status');
	my ($requests_now, $tickets_now) = split /\|/, $node->status('requests, tickets');
	$others{$n} = $requests_now - $requests - 4 * $n;
	note sprintf '%d leases: %d requests, %.2f s of CPU', $n, $requests_now - $requests, $node->worker_cpu - $cpu;
	cmp_ok($tickets_now - $tickets, '<=', $n + 3, "$n leases: one create each, and the inner mutex's");
	cmp_ok($others{$n}, '<', 40, "$n leases: few requests besides");
}
cmp_ok($others{400} - $others{10}, '<', 10, 'not more of them for more leases');

# The same holds after a reconnect.
is($holder->query(acquire('/cost/again', 400)), 't', '400 leases');
$zk->wait_until(sub { $zk->cmd('mntr') =~ /zk_watch_count\s+(\d+)/ && $1 == 403 }, 'all watches');
my ($requests, $connects) = split /\|/, $node->status('requests, connects');
$zk->restart;
$node->wait_until("SELECT connects > $connects FROM zk_status");
$node->wait_until_connected;
$zk->wait_until(sub { $zk->cmd('mntr') =~ /zk_watch_count\s+(\d+)/ && $1 == 403 }, 'all watches');
cmp_ok($node->status('requests') - $requests, '<', 440 * ($node->status('connects') - $connects), 'a reconnect takes one list for all of them');
is($holder->query("SELECT zk_lock_is_held('/cost/again')"), 't', 'they are held');
is($holder->query(release('/cost/again', 400)), 't', 'and released');

# --- another role meanwhile ----------------------------------------------------------------

is($abuser->errcode("SELECT zk_semaphore_acquire('/bulk', 4000, '15 s', 4000)"), '54000', 'not thousands of leases in one call');
like($abuser->run("SELECT zk_semaphore_acquire('/bulk', 4000, '15 s', 1001)")->{err}, qr/DETAIL:\s+At most 1000 can be acquired together/, 'but as many as the message says');

sub try_locks
{
	my ($n, $what) = @_;
	my @seconds;
	my $refused = 0;
	foreach my $i (1 .. $n)
	{
		my $before = time;
		my $result = $victim->run("SELECT zk_lock_acquire('/victim/' || gen_random_uuid())");
		push @seconds, time - $before;
		$refused++ unless $result->{out} eq 't';
		$victim->query('SELECT zk_lock_release_all()');
	}
	my @sorted = sort { $a <=> $b } @seconds;
	note sprintf '%s: an acquire takes %.1f ms, at most %.1f', $what, 1000 * $sorted[ $#sorted / 2 ], 1000 * max(@seconds);
	is($refused, 0, "$what: no lock is refused");
	return;
}

# ZooKeeper may take long for an answer, as long as it answers heartbeats.
$victim->query("SET zklock.connection_timeout = '1ms'");
try_locks(100, 'alone');
foreach my $case (
	[ 'beside leases', q{PERFORM zk_semaphore_acquire('/bulk', 1000, '1min', 1000); PERFORM zk_semaphore_release('/bulk', 1000);} ],
	[ 'beside many locks', q{PERFORM zk_xact_lock_acquire('/bulk/' || j) FROM generate_series(1, 500) AS j; ROLLBACK;} ])
{
	my ($what, $work) = @$case;
	my ($tickets) = $node->status('tickets');
	$abuser->send("DO \$\$ BEGIN LOOP $work END LOOP; END \$\$");
	$node->wait_until("SELECT tickets > $tickets + 100 FROM zk_status");
	try_locks(100, $what);
	ok(!$abuser->is_done, "$what: which go on");
	$node->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $abuser->pid . ')');
	is($abuser->result->{errcode}, '57014', "$what: until they are cancelled");
	$abuser->query('SELECT zk_lock_release_all()');
	$node->wait_until('SELECT entries = 0 FROM zk_status');
}

# --- bulk work, and another role's next request ----------------------------------------------

# While ZooKeeper stands still, bulk work fills the worker's queue, and then the victim wants a lock.
# ZooKeeper numbers all writes, so the numbers of the victim's tickets tell how many writes came
# in between.

# The bulk writes that may be on their way, the victim's own writes, heartbeats.
my $few = 16 + 24;
my $n = 0;

$victim->query('RESET zklock.connection_timeout');
$node->set('zklock.connection_timeout', '2min');

sub czxid { return $victim->query("SELECT zk_lock_token('$_[0]') / 65536"); }

# The worker has sent everything that it can send without an answer.
sub wait_until_quiet
{
	my ($before, $now) = (-1, $node->status('requests'));
	until ($now == $before)
	{
		$node->safe_psql('postgres', 'SELECT pg_sleep(0.05)');
		($before, $now) = ($now, $node->status('requests'));
	}
	return $now;
}

sub check
{
	my ($what, $prepare, $work, $is_queued, $bound) = @_;
	$n++;
	my @path = ("/bystander/before/$n", "/bystander/after/$n");
	$node->wait_until(q{SELECT count(*) = 0 FROM zk_locks WHERE path LIKE '/bulk/%'});
	$abuser->query($prepare);
	$victim->query("SELECT zk_lock_acquire('$path[0]')");
	wait_until_quiet();
	$zk->pause;
	$abuser->send($work);
	$node->wait_until($is_queued);
	wait_until_quiet();
	$victim->send("SELECT zk_lock_acquire('$path[1]')");
	$node->wait_for_waiter($path[1], 1);
	$zk->resume;
	is($victim->answer, 't', "$what: another role has its lock");
	my $between = czxid($path[1]) - czxid($path[0]);
	cmp_ok($between, '<=', $bound, "$what: $between writes came before");
	is($abuser->result->{errcode}, '', "$what: is done as well");
	$abuser->query('ROLLBACK; SELECT zk_lock_release_all()');
	return;
}

# The directories are made before anything is counted.
$victim->query("SELECT zk_lock_acquire('/bystander/$_/0')") foreach 'before', 'after';

my $many = 900;
sub tickets { my ($state, $number) = @_; return "SELECT count(*) >= $number FROM zk_locks WHERE path LIKE '/bulk/%' AND ticket = '$state'"; }

check('leases', q{SELECT zk_semaphore_acquire('/bulk/leases', 1000)},
	"SELECT zk_semaphore_acquire('/bulk/leases', 1000, '0', $many)", tickets('wanted', $many), $few);
check('a multilock', 'SELECT 1',
	"SELECT zk_multilock_acquire(array_agg('/bulk/multi/' || i)) FROM generate_series(1, $many) AS i", tickets('wanted', $many), $few);
check('releases', "SELECT count(zk_lock_acquire('/bulk/release/' || i)) FROM generate_series(1, $many) AS i",
	'SELECT zk_lock_release_all()', tickets('releasing', $many), $few);
check('releases of leases', "SELECT zk_semaphore_acquire('/bulk/leases', 1000, '1min', $many)",
	'SELECT zk_lock_release_all()', 'SELECT NOT EXISTS (SELECT FROM zk_locks WHERE granted AND path LIKE \'/bulk/%\')', $few);
check('queues to be read', "SELECT zk_semaphore_acquire('/bulk/leases', 1000, '1min', $many)",
	"SELECT count(*) FROM zk_lock_queue('/bulk/leases')", "SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = " . $abuser->pid, $few);

# When runs of jobs end, the worker writes their records before all else; so their number is
# limited.
my $run = q{SELECT count(*) FROM generate_series(1, %d) AS i WHERE zk_xact_run_once('/bulk/job/' || i)};
is($abuser->errcode('BEGIN; ' . sprintf($run, 65)), '53400', 'a session has at most 64 runs of jobs at a time');
$abuser->query('ROLLBACK');
check('runs of jobs', 'BEGIN; ' . sprintf("SELECT count(*) FROM generate_series(1, %d) AS i WHERE zk_xact_run_once('/bulk/other/' || i)", 64),
	'ROLLBACK', tickets('releasing', 64), $few + 64);

# The limits of one call.
my $deep = join '', map { "/d$_" } 1 .. 15;
is($abuser->query("SELECT zk_lock_acquire('/bulk$deep')"), 't', 'a path of 16 components');
is($abuser->errcode("SELECT zk_lock_acquire('/bulk$deep/d16')"), '22023', 'not of 17');
is($abuser->errcode(q{SELECT zk_multilock_acquire(array_agg('/bulk/' || i)) FROM generate_series(1, 1001) AS i}), '54000', 'not more than 1,000 paths');
$abuser->query('SELECT zk_lock_release_all()');

$node->set('zklock.max_jobs', 129);
is($abuser->errcode(q{SELECT zk_run_once('/bulk/last/' || i) FROM generate_series(1, 20) AS i}), '53400', 'not more jobs than zklock.max_jobs');

$_->quit foreach $abuser, $victim, $holder;

# --- how much one role may have --------------------------------------------------------------

# With PostgreSQL's own defaults.
$node->configure('max_connections' => 100, 'max_locks_per_transaction' => 64, 'zklock.connection_timeout' => '30s');
$node->restart;
$node->wait_until_connected;
my $limit = $node->status('max_locks');
cmp_ok($limit, '>', 3500, "there is room for $limit locks");
unlike(slurp_file($node->logfile), qr/lock table carries/, 'and the log warns of nothing');

sub backend_of { my ($role) = @_; return $node->backend(extra_params => [ '-U', $role ]); }
my $take = "SELECT zk_lock_acquire('/all/' || gen_random_uuid()) FROM generate_series(1, 10000)";
$abuser = backend_of('abuser');
$victim = backend_of('victim');
my $result = $abuser->run($take);
is($result->{errcode}, '53400', 'one backend does not get all');
like($result->{err}, qr/ERROR:.*too many locks for one session.*DETAIL:.*The session holds 1000 locks and leases and requests 1 more; the limit is 1000.*HINT:.*zklock\.max_locks_per_backend/s,
	'and is told why');
is($node->safe_psql('postgres', 'SELECT count(*) FROM zk_locks WHERE granted'), 1000, 'it has as many as it may');
foreach my $case (
	[ "zk_xact_lock_acquire('/other')", 'a lock to the end of the transaction' ],
	[ "zk_semaphore_acquire('/other', 3)", 'a lease' ],
	[ "zk_multilock_acquire(ARRAY['/other', '/another'])", 'several locks' ])
{
	is($abuser->errcode("SELECT $case->[0]"), '53400', "not $case->[1], either");
}
is($victim->query("SELECT zk_lock_acquire('/victim')"), 't', 'another role has its lock');
is($abuser->errcode('SET zklock.max_locks_per_backend = 5000'), '42501', 'the role cannot change that');
cmp_ok($abuser->query('SELECT zk_lock_release_all()'), '==', 1000, 'it releases them');
is($abuser->query("SELECT zk_semaphore_acquire('/leases', 1000, '1min', 1000)"), 't', 'or has as many leases');
is($abuser->errcode("SELECT zk_semaphore_acquire('/others', 1)"), '53400', 'not one more');
is($abuser->query("SELECT zk_semaphore_release('/leases', 3)"), 't', 'a few less');
is($abuser->query("SELECT zk_multilock_acquire(ARRAY['/m/1', '/m/2'])"), 't', 'make room for others');
is($abuser->query("SELECT zk_lock_acquire('/m/1')"), 't', 'what it has it may acquire again');
is($abuser->query("SELECT zk_semaphore_acquire('/leases', 1000)"), 't', 'and one lease more');
is($abuser->errcode("SELECT zk_semaphore_acquire('/leases', 1000)"), '53400', 'but that was the last');
is($abuser->query('SELECT zk_lock_release_all()'), 1001, 'all are released');
$node->wait_until('SELECT entries = 1 FROM zk_status');
$node->safe_psql('postgres', 'ALTER ROLE abuser SET zklock.max_locks_per_backend = 3');
$abuser->quit;
$abuser = backend_of('abuser');
is($abuser->query(q{BEGIN; SELECT zk_xact_semaphore_acquire('/few', 5, NULL, 2); SAVEPOINT s; SELECT zk_xact_semaphore_acquire('/few', 5)}),
	"t\nt", 'for a role, it may be less');
is($abuser->errcode(q{SELECT zk_xact_semaphore_acquire('/few', 5)}), '53400', 'and is');
is($abuser->query(q{ROLLBACK TO s; SELECT zk_xact_lock_acquire('/few/1')}), 't', 'a savepoint gives back what it took');
is($abuser->query(q{COMMIT; SELECT count(*) FROM generate_series(1, 3) AS i WHERE zk_lock_acquire('/few/' || i)}), 3, 'and so does the end of the transaction');
$abuser->quit;

# Together, many backends get all that there is, and PostgreSQL goes on.
$node->safe_psql('postgres', 'ALTER ROLE abuser RESET zklock.max_locks_per_backend');
my @abusers = map { backend_of('abuser') } 0 .. $limit / 1000;
$_->send($take) foreach @abusers;
is(join(' ', map { $_->result->{errcode} } @abusers), join(' ', ('53400') x @abusers), 'all get as many as they may');
is($node->status('entries'), $limit, 'that is all there is');
is($victim->errcode("SELECT zk_lock_acquire('/victim/2')"), '53400', 'no more of it');
$node->safe_psql('postgres', 'CREATE TABLE goes_on (i int); DROP TABLE goes_on') foreach 1 .. 5;
pass('but new connections go on');
is($victim->query("SELECT zk_lock_release('/victim')"), 't', 'and so does a backend that has a lock');
$_->quit foreach @abusers, $victim;
$node->wait_until('SELECT entries = 0 FROM zk_status');

$node->stop;
done_testing();
