
# zklock.auth_file and zklock.acl: as which user this server authenticates to ZooKeeper, and what
# other clients may do with its znodes.

use strict;
use warnings;

use Digest::SHA qw(sha1_base64);

use ZklockTest;

my $zk = ZooKeeper->new;
my $SECRET = 'kei7-Noo9-uuXo';
my $MINE = [ 'digest', hash("svc:$SECRET"), 31 ];

sub hash { my ($credentials) = @_; return ($credentials =~ s/:.*//r) . ':' . sha1_base64($credentials) . '='; }

sub write_file
{
	my ($file, $text, $mode) = @_;
	unlink $file;
	append_to_file($file, $text);
	chmod $mode // 0600, $file;
	return;
}

sub log_of { my ($node) = @_; return slurp_file($node->logfile); }
sub count { my ($node, $regexp) = @_; return scalar(() = log_of($node) =~ /$regexp/g); }

sub wait_for_log
{
	my ($node, $regexp, $n) = @_;
	$zk->wait_until(sub { count($node, $regexp) >= $n }, "$n times in the log: $regexp");
	return;
}

$zk->exists('/', user => "svc:$SECRET");	# as this user, the test itself looks at znodes
my $dir = PostgreSQL::Test::Utils::tempdir('credentials');
my $file = "$dir/of_a";

write_file($file, "# who we are\n\ndigest\tsvc:$SECRET\r\ndigest other:one too\n");
my $node_a = ZklockNode->started('a', $zk,
	'zklock.session_timeout' => '30s',
	'zklock.connection_timeout' => '2min',
	'zklock.auth_file' => $file,
	'zklock.acl' => 'creator',
	'zklock.leader_of' => '/leader',
	'log_min_messages' => 'debug5');
my ($a1, $a2) = map { $node_a->backend } 1, 2;

# --- everything that zklock makes ---

$a1->query(acquire('/some/mutex'));
$a1->query(q{SELECT zk_read_lock_acquire('/some/reader')});
$a1->query(q{SELECT zk_semaphore_acquire('/some/semaphore', 3, NULL, 2)});
$a1->query(q{SELECT zk_multilock_acquire('{/many/a, /many/b}')});
$a1->query(q{SELECT zk_run_once('/some/job', now())});
$node_a->wait_until(q{SELECT zk_is_leader('/leader')});

# A writer becomes a reader, in a transaction of its own kind.
$a1->query(q{SELECT zk_write_lock_acquire('/some/writer'), zk_read_lock_acquire('/some/writer')});
my $node_r = ZklockNode->started('r', $zk, 'zklock.auth_file' => $file, 'zklock.acl' => 'creator');
my $r1 = $node_r->backend;
$r1->send(q{SELECT zk_read_lock_acquire('/some/writer')});
$a1->query(q{SELECT zk_write_lock_release('/some/writer')});
is($r1->result->{out}, 't', 'another server with the same identity shares a lock');
$zk->wait_for_children('/zklock/some/writer', sub { @{ $_[0] } == grep({ /__READ__/ } @{ $_[0] }) });

my @made = ('/zklock', @{ $zk->tree('/zklock') });
my @others = ([ 'digest', hash('other:one too'), 31 ], $MINE);
foreach my $kind (qw(some/mutex/_c_ __READ__ leases/_c_ locks jobs/ leader/_c_ many/b/_c_))
{
	ok(scalar(grep { /\Q$kind\E/ } @made), "there is a $kind");
}
is_deeply([ grep { !eq_set($zk->acl($_), \@others) } @made ], [], 'all belong to their creator')
  or diag explain [ map { [ $_, $zk->acl($_) ] } @made ];
ok(!eval { $zk->children('/zklock/some', client => 'stranger'); 1 } && $@ =~ /NoAuth/, 'a stranger cannot look');
$r1->quit;
$node_r->stop;
$a1->query('SELECT zk_lock_release_all()');

# --- the secret ---

my $known = join "\n", map { $node_a->safe_psql('postgres', $_) }
  'SHOW ALL', 'SELECT s::text FROM pg_settings s', 'SELECT f::text FROM pg_file_settings f',
  'SELECT s::text FROM zk_status s', 'SELECT s::text FROM zk_sessions s',
  'SELECT a::text FROM pg_stat_activity a', 'SELECT l::text FROM zk_locks l';
unlike($known, qr/\Q$SECRET\E/, 'the secret is in no view and no setting');
like($known, qr/\Q$file\E/, 'but the name of the file is');
is($node_a->safe_psql('postgres', q{
	CREATE ROLE plain; SET ROLE plain;
	SELECT count(*) FROM pg_settings WHERE name IN ('zklock.auth_file', 'zklock.acl')}), '0',
	'only for roles that may see it');

my %children = $node_a->children;
my ($worker) = $node_a->worker_pid;
my ($postmaster) = slurp_file($node_a->data_dir . '/postmaster.pid') =~ /^(\d+)/;
ok($children{ $a1->{pid} }, 'there is a backend');
is_deeply([ $node_a->who_has_in_memory($SECRET) ], [ $worker ], 'the worker knows it, and no other process');
is_deeply([ grep { (eval { slurp_file("/proc/$_/cmdline") } // '') =~ /\Q$SECRET\E/ } $postmaster, keys %children ], [],
	'no process title shows it');
unlike(log_of($node_a), qr/\Q$SECRET\E/, 'nor does the log, at debug5');
$node_a->set('log_min_messages', 'warning');

# --- a file that cannot be used ---

# At a reload, the credentials that were in use stay in use.
is($a1->query(acquire('/kept')), 't', 'a lock is held');
my %unusable = (
	'group access' => [ sub { write_file($file, "digest svc:$SECRET\n", 0640) }, qr/group or world access; it must have permissions u=rw \(0600\)/ ],
	'a file of root that all may read' => [ sub { unlink $file; symlink '/etc/passwd', $file or die $! }, qr/or, if owned by root, u=rw,g=r \(0640\) or less/ ],
	'no file' => [ sub { unlink $file }, qr/could not open "zklock\.auth_file": No such file/ ],
	'a directory' => [ sub { unlink $file; mkdir $file }, qr/not a regular file/ ],
	'no colon' => [ sub { rmdir $file; write_file($file, "\ndigest $SECRET\n") }, qr/line 2 of "zklock\.auth_file": the credentials of scheme "digest" must be "user:password"/ ],
	'no credentials' => [ sub { write_file($file, "$SECRET\n") }, qr/line 1 of "zklock\.auth_file": a scheme, a blank and credentials were expected/ ],
	'an empty file' => [ sub { write_file($file, '') }, qr/"zklock\.auth_file" cannot be used: there are no credentials in it/ ],
	'only a comment' => [ sub { write_file($file, "# digest svc:$SECRET\n") }, qr/"zklock\.auth_file" cannot be used: there are no credentials in it/ ],
	'a null' => [ sub { write_file($file, "digest svc:$SECRET\0\n") }, qr/line 1 of .*null character/ ],
	'too long' => [ sub { write_file($file, "digest svc:$SECRET\n" . '#' x 9000) }, qr/too large/ ]);
foreach my $what (sort keys %unusable)
{
	my ($make, $message) = @{ $unusable{$what} };
	$make->();
	my $n = count($node_a, $message);
	$node_a->reload;
	wait_for_log($node_a, qr/credentials for ZooKeeper were not reloaded: .*$message/, $n + 1);
	is($a1->query(acquire('/beside' . $what =~ s/ /_/gr, '0')), 't', "$what: goes on with what it has");
	rmdir $file if -d $file;
}
is($node_a->status('connects'), '1', 'all over one connection');

# At the start, the server has no credentials to go on with, so callers get the error at once.
$a1->quit;
$a2->quit;
write_file($file, "digest svc:$SECRET\n", 0644);
$node_a->restart;
$a1 = $node_a->backend;
my $result = $a1->run(acquire('/start', '1min'));
is($result->{errcode}, '28000', 'a file that others can read: refused');
like($result->{err}, qr/not authenticated with ZooKeeper.*DETAIL:  The last error was: /s, 'and says so');
cmp_ok($result->{seconds}, '<', 20, 'without a wait for the end of its time');
is($a1->errcode(q{SELECT * FROM zk_lock_queue('/start')}), '28000', 'so is a look at a queue');
like($node_a->status('last_error'), qr/group or world access/, 'zk_status has the reason');
is($node_a->status('connects'), '0', 'ZooKeeper was not bothered');
is($node_a->status('state'), 'refused', 'and the state');
chmod 0600, $file;
$node_a->wait_until_connected;
is($a1->query(acquire('/start', '1min')), 't', 'when the file is right, the server finds out by itself');
is(count($node_a, qr/could not authenticate with ZooKeeper/), 1, 'the log has said it once');

# --- credentials that ZooKeeper refuses ---

my $a3 = $node_a->backend;
my $session = $node_a->status('session_id');
$a1->query('CREATE TABLE t (i int); BEGIN; INSERT INTO t VALUES (1)');
is($a1->query(q{SELECT zk_xact_lock_acquire('/kept')}), 't', 'a transaction holds a lock');
$zk->create('/zklock/wait', acl => [ [ 'auth', '', 'cdrwa' ] ]);
$zk->create('/zklock/wait/_c_1b4e28ba-2fa1-41d2-883f-0016d3cca427-lock-', ephemeral => 1, sequence => 1,
	client => 'holder', user => "svc:$SECRET", acl => [ [ 'auth', '', 'cdrwa' ] ]);
$a3->send(acquire('/wait'));
$node_a->wait_for_ticket('/wait', 'queued');

write_file($file, "nosuchscheme $SECRET\n");
$node_a->reload;
wait_for_log($node_a, qr/could not authenticate with ZooKeeper: ZooKeeper refused the credentials/, 1);
my $b1 = $node_a->backend;
is($b1->errcode(acquire('/refused', '1min')), '28000', 'a refused authentication: 28000');
is($b1->errcode(q{SELECT * FROM zk_lock_queue('/refused')}), '28000', 'for commands, too');
my $connects = $node_a->status('connects');
ok(!$a3->is_done, 'a backend that waited before still waits');

write_file($file, "digest svc:$SECRET\n");
$node_a->reload;
$node_a->wait_until_connected;
is($node_a->status('session_id'), $session, 'with the right file, the same session goes on');
is($node_a->status('epoch'), '1', 'which has never expired');
is($a1->run('COMMIT')->{err}, '', 'the transaction that held a lock all the time commits');
is($a1->query(q{SELECT zk_lock_is_held('/start')}), 't', 'and the session-level lock is held');
ok(!$a3->is_done, 'the other backend waits on');
$zk->close('holder');
is($a3->result->{out}, 't', 'and gets the lock');
# An attempt may have been under way, or have been closed before ZooKeeper said why.
cmp_ok($node_a->status('connects') - $connects, '<=', 3, 'there was no storm');
is(count($node_a, qr/could not authenticate with ZooKeeper: ZooKeeper refused/), 1, 'the log has said it once');
unlike(log_of($node_a), qr/\Q$SECRET\E/, 'and never the secret');

# --- another identity ---

my $file_b = "$dir/of_b";
write_file($file_b, "digest svc:wrong\n");
my $node_b = ZklockNode->started('b', $zk, 'zklock.auth_file' => $file_b, 'zklock.acl' => 'creator');
my $b2 = $node_b->backend;
$node_b->wait_until(q{SELECT state = 'refused' AND last_error ~ 'denied permission for the record of this server' FROM zk_status});
pass('a wrong password: the state says so before any call fails');
foreach my $call (try('/start'), acquire('/new/one'), q{SELECT zk_semaphore_acquire('/s', 2)},
	q{SELECT * FROM zk_lock_queue('/start')}, q{SELECT zk_run_once('/some/other/job', now())},
	q{SELECT zk_lock_revoke('/start')})
{
	$result = $b2->run($call);
	is($result->{errcode}, '28000', "a wrong password: $call");
	like($result->{err}, qr/permission denied by ZooKeeper/, 'and the message');
}
is(count($node_b, qr/ZooKeeper denied permission for a request of this server/), 1, 'one line in the log for all of them');
is(count($node_b, qr/WARNING:  could not publish in ZooKeeper that this server takes part/), 1, 'and one about its record');
is($node_b->safe_psql('postgres', q{SELECT errors FROM zk_stat_errors() WHERE sqlstate = '28000'}), '6', 'all are counted');
is($node_b->status('connects'), '1', 'and one connection');
$node_b->wait_until(q{SELECT entries = 0 AND ephemeral_bytes = 0 FROM zk_status});
pass('nothing is left of them');
write_file($file_b, "digest svc:$SECRET\n");
$node_b->reload;
wait_for_log($node_b, qr/continuing the ZooKeeper session with other credentials/, 1);
$node_b->wait_until_connected;
$node_b->wait_until(q{SELECT state IN ('connected', 'idle') FROM zk_status});
is(count($node_b, qr/accepts the record of this server again/), 1, 'the state ends with the repair');
is($b2->query(try('/start')), 'f', 'with the right one it sees the holder of the lock');
is($b2->query(acquire('/new/one')), 't', 'and acquires others');
$b2->query('SELECT zk_lock_release_all()');

# A role can use a path that another client has closed, but that says nothing about the server.
$zk->create('/zklock/foreign', acl => [ [ 'digest', hash('foreigner:secret'), 'cdrwa' ] ]);
is($b2->errcode(acquire('/foreign')), '28000', 'a lock that is refused');
is($node_b->safe_psql('postgres', q{SELECT state IN ('connected', 'idle') FROM zk_status}), 't', 'is not a server that is refused');

# --- zklock.acl ---

$node_b->set('zklock.acl', 'digest:' . hash("svc:$SECRET") . ':cdrwa, world:anyone:r');
$b2->query(q{SELECT count(*) FROM zk_lock_queue('/listed')});		# its reply shows that the worker has read the setting
is($b2->query(acquire('/listed')), 't', 'a list of our own');
is_deeply($zk->acl('/zklock/listed'), [ $MINE, [ 'world', 'anyone', 1 ] ], 'the directory has it');
my $ticket = '/zklock/listed/' . $zk->children('/zklock/listed')->[0];
is_deeply($zk->acl($ticket), [ $MINE, [ 'world', 'anyone', 1 ] ], 'so has the ticket');
ok(!eval { $zk->delete($ticket, client => 'stranger'); 1 } && $@ =~ /NoAuth/, 'anyone may look, but not delete');

$node_b->configure('zklock.auth_file' => '');
$node_b->set('zklock.acl', 'creator');
wait_for_log($node_b, qr/continuing the ZooKeeper session with other credentials/, 2);
$node_b->wait_until_connected;
$zk->create('/zklock/for_all', acl => [ [ 'world', 'anyone', 'cdrwa' ] ]);
$result = $b2->run(acquire('/for_all/x'));
is($result->{errcode}, '28000', '"creator", but the creator has no identity');
like($result->{err}, qr/does not accept the access control list in "zklock.acl"/, 'and why');
is(count($node_b, qr/LOG:  ZooKeeper does not accept the access control list/), 1, 'the log has it once');
is($b2->errcode(try('/for_all/y')), '28000', 'again');
is(count($node_b, qr/LOG:  ZooKeeper does not accept the access control list/), 1, 'and still once');

foreach my $bad ('', 'closed', 'creator,open', 'world:anyone', 'world:anyone:x', ':anyone:r', 'world:anyone:r,', 'x' x 40 . ':y:r',
	join(',', ('world:anyone:r') x 17))
{
	my ($rc, undef, $err) = $node_b->psql('postgres', "ALTER SYSTEM SET zklock.acl = '$bad'");
	like($err, qr/invalid value for parameter "zklock.acl"/, "refused: " . substr $bad, 0, 20);
}
$_->quit foreach $b1, $b2, $a1, $a3;
$node_b->stop;
$node_a->stop;

done_testing();
