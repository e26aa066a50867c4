
# ZooKeeper's servers differ for good, by a defect of ZooKeeper: one of them shows data that the
# leader does not have.  A write that is refused for that is not repeated for ever.

use strict;
use warnings;

use ZklockTest;

my $zk = ZooKeeper->new(servers => 3);
my ($old, $good) = $zk->followers;
my %settings = ('zklock.session_timeout' => '60s', 'zklock.connection_timeout' => '2min', 'zklock.linger' => 0);
my $node_a = ZklockNode->started('a', undef, %settings, 'zklock.hosts' => $zk->address($old));
my $node_b = ZklockNode->started('b', undef, %settings, 'zklock.hosts' => $zk->address($good));
my ($a1, $a2, $b1, $b2) = map { $_->backend } $node_a, $node_a, $node_b, $node_b;

sub run_once { my ($path, $hour) = @_; return "SELECT zk_run_once('$path', '2024-05-05 0$hour:00Z')"; }
sub znode_of { my ($path) = @_; return "/zklock$path/" . $zk->children("/zklock$path")->[0]; }

sub differs
{
	my ($sql, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $result = $a2->run("SET statement_timeout = '1min'; $sql");
	$a2->query('RESET statement_timeout');
	is($result->{errcode}, 'XX001', "$what: an error") or diag($result->{err});
	like($result->{err}, qr/ERROR:  XX001: ZooKeeper's servers do not agree about lock "\S+"\nDETAIL:  .*refused a write.*\nHINT:  The server log names/, "$what: which says why");
	return;
}

# A loop would send hundreds of requests in this time, even on a slow machine.
sub is_quiet
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $before = $node_a->status('requests');
	$a2->query('SELECT pg_sleep(1)');
	return cmp_ok($node_a->status('requests') - $before, '<', 100, "$what: tried a few times at most");
}

foreach my $path ('/jobs/old', '/jobs/missing')
{
	is($b1->query(run_once($path, 1)), 't', "$path: run");
	$b1->query("SELECT zk_lock_release('$path')");
	$node_b->wait_until("SELECT state = 'done' FROM zk_jobs WHERE path = '$path'");
}
$b1->query(q{SELECT zk_lock_acquire('/theirs')});
$a1->query(q{SELECT zk_lock_acquire('/ours'), zk_write_lock_acquire('/rw'), zk_read_lock_acquire('/rw')});
my $session = $node_a->status('session_id');
my $log = -s $node_a->logfile;
my $connects = $node_a->status('connects');
$zk->stop($old);
$zk->edit($old, [ '/zklock/.zklock/jobs/jobs%2Fmissing', delete => '-' ],
	map { [ $_, version => 7 ] } '/zklock/.zklock/jobs/jobs%2Fold', map { znode_of($_) } '/theirs', '/ours', '/rw');
$zk->start($old);
$node_a->wait_until("SELECT connects > $connects AND safe FROM zk_status");
is($node_a->status('session_id'), $session, 'the session lives on');

# --- a job ---

differs(run_once('/jobs/old', 2), 'a record of another version');
like(slurp_file($node_a->logfile, $log), qr/LOG:  ZooKeeper server "${\ $zk->address($old) }" differs from the leader of its ensemble\n.*DETAIL:  A write to znode "\/zklock\/\.zklock\/jobs\/jobs%2Fold" was refused/,
	'the log names the server');
like($node_a->status('last_error'), qr/^ZooKeeper server "\S+" differs from the leader of its ensemble$/, 'and so does zk_status');
differs(run_once('/jobs/missing', 2), 'a record that is missing');
is($a2->query(q{SELECT count(*) FROM zk_locks WHERE path LIKE '/jobs%' AND claim IS NOT NULL}), '0', 'nothing is held');

# --- locks ---

differs(q{SELECT zk_lock_revoke('/theirs')}, 'the request for a release');
is($a1->query(q{SELECT zk_write_lock_release('/rw')}), 't', 'a writer becomes a reader');
is_quiet('its downgrade');
$b1->send(q{SELECT zk_read_lock_acquire('/rw')});
$node_b->wait_for_ticket('/rw', 'queued');
is($b2->query(q{SELECT zk_lock_acquire('/ours', '0')}), 'f', 'a try ends');
is_quiet('an answer to a try');
is(scalar(() = slurp_file($node_a->logfile, $log) =~ /LOG:  .*differs from the leader/g), 1, 'the log tells of it once');

# --- what the log advises ---

$connects = $node_a->status('connects');
$zk->stop($old);
$zk->forget($old);
$zk->start($old);
$node_a->wait_until("SELECT connects > $connects AND safe FROM zk_status");
is($node_a->status('session_id'), $session, 'repaired: the session lives on');
is($a2->query(run_once('/jobs/old', 2)), 't', 'repaired: the job runs');
is($a2->query(run_once('/jobs/missing', 1)), 'f', 'repaired: the other one remembers its tick');
is($a2->query(q{SELECT zk_lock_revoke('/theirs')}), '1', 'repaired: the release is requested');
$node_b->wait_until(q{SELECT bool_and(revoked) FROM zk_locks WHERE path = '/theirs'});
$a1->query(q{SELECT zk_lock_release_all()});
is($b1->answer, 't', 'a reader of another server gets its turn');

done_testing();
