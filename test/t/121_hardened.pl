
# An ensemble that demands authentication, and directories of which zklock may use only a part.

use strict;
use warnings;

use Digest::SHA qw(sha1_base64);

use ZklockTest;

sub hash { my ($credentials) = @_; return ($credentials =~ s/:.*//r) . ':' . sha1_base64($credentials) . '='; }

my $zk = ZooKeeper->new(java_opts => '-Dzookeeper.enforce.auth.enabled=true -Dzookeeper.enforce.auth.schemes=digest');
my $ADMIN = 'admin:Aiz6-aeb4';
my $ZKLOCK = 'zklock:oo4U-ieph';
my @admin = ('digest', hash($ADMIN), 'cdrwa');

# The test itself looks at znodes as this user.
$zk->exists('/', user => $ADMIN);

# What zklock may do with a directory.
sub allow
{
	my ($path, $perms) = @_;
	eval { $zk->create($path) } unless $path eq '/';
	$zk->set_acl($path, \@admin, $perms ? [ 'digest', hash($ZKLOCK), $perms ] : ());
	return;
}

# --- without credentials ---

my $file = PostgreSQL::Test::Utils::tempdir('hardened') . '/credentials';
my $node = ZklockNode->initialized('a', $zk,
	'zklock.session_timeout' => '2s',
	'zklock.connection_timeout' => '2min',
	'zklock.acl' => "digest:" . hash($ZKLOCK) . ":cdrwa, digest:" . hash($ADMIN) . ":cdrwa");
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION zklock');

sub count { my ($regexp) = @_; return scalar(() = slurp_file($node->logfile) =~ /$regexp/g); }

$node->wait_until(q{SELECT last_error ~ 'refused the credentials' FROM zk_status});
my $b = $node->backend;
my $result = $b->run(acquire('/job', '1min'));
is($result->{errcode}, '28000', 'no credentials, but ZooKeeper demands some: 28000');
like($result->{err}, qr/this server is not authenticated with ZooKeeper/, 'message');
is($b->errcode(q{SELECT * FROM zk_lock_queue('/job')}), '28000', 'and for a queue');

# Each attempt makes a ZooKeeper session, or finds that the last one has expired.
$node->wait_until('SELECT epoch >= 4 FROM zk_status');
my ($epoch, $connects) = split /\|/, $node->safe_psql('postgres', 'SELECT epoch, connects FROM zk_status');
# ZooKeeper may close the connection before the client has read that it is refused.
my $closed = count(qr/LOG:  could not connect/);
cmp_ok($connects, '<=', $epoch + 1 + $closed, 'the server tries again once for each session that has expired');
cmp_ok($closed, '<', $connects, 'and is told why, unless ZooKeeper was too fast');
is(count(qr/could not authenticate with ZooKeeper/), 1, 'the log says it once');
is(count(qr/(?:has expired|refused a request)/), 0, 'and nothing else');
# The worker takes a connection that closes without a reason for a broken one, and logs the next one anew.
cmp_ok(count(qr/LOG:  connected to ZooKeeper/), '<=', 1 + $closed, 'nor that it is connected, again and again');

append_to_file($file, "digest $ZKLOCK\n");
chmod 0600, $file;
$node->configure('zklock.auth_file' => $file, 'zklock.session_timeout' => '8s');
$node->reload;
$node->wait_until_connected;
is($b->query(acquire('/job')), 't', 'with credentials and a reload the server is let in');
is($b->query(release('/job')), 't', 'and works');
ok($zk->wait_until(sub { $zk->has_session($node->status('session_id')) }, 'the session'), 'in a session of its own');

# --- a part of the tree ---

allow('/');
allow($_, 'r') foreach '/zklock', '/zklock/.zklock';
allow('/zklock/app', 'cdrw');
$node->restart;
$node->wait_until_connected;
$b->quit;
$b = $node->backend;
is($b->query(acquire('/app/one')), 't', 'only a part of the root can be written: a lock there');
is($b->query(q{SELECT zk_semaphore_acquire('/app/deep/two', 2)}), 't', 'a semaphore');
is($b->query(q{SELECT zk_multilock_acquire('{/app/a, /app/b}')}), 't', 'a multilock');
is($b->query(q{SELECT count(*) FROM zk_lock_queue('/app/one')}), '1', 'its queue');
is($b->errcode(acquire('/other')), '28000', 'no lock beside it');
is($b->errcode(q{SELECT zk_run_once('/app/job', now())}), '28000', 'and no job: the records of jobs are beside it, too');
is($b->errcode(q{SELECT zk_multilock_acquire('{/app/c, /other}', '0')}), '28000', 'of a multilock, all or none');
$node->wait_until(q{SELECT count(*) = 0 FROM zk_locks WHERE path IN ('/app/c', '/other')});
pass('nothing is left of that');

# zklock may not read "/", which the heartbeat does.  The refusal still proves that the session
# lives.
my ($since, $connected) = split /\|/, $node->safe_psql('postgres', 'SELECT connected_since, connects FROM zk_status');
$node->wait_until("SELECT safe_until > '$since'::timestamptz + 2 * session_timeout FROM zk_status");
$node->wait_until('SELECT safe FROM zk_status');
is($node->safe_psql('postgres', 'SELECT epoch, expirations FROM zk_status'), '1|0',
	'the session lives on while each heartbeat is refused');
cmp_ok($node->status('connects'), '<=', $connected + 1, 'and does not connect anew each time');
is($b->query(q{SELECT zk_lock_is_held('/app/one')}), 't', 'and the lock is held');
is($b->query('BEGIN; CREATE TABLE t (); COMMIT; SELECT 1'), '1', 'a transaction commits');
is(count(qr/ZooKeeper refuses the heartbeat/), 0, 'the log does not complain');
is(count(qr/LOG:  ZooKeeper denied permission for a request/), 1, 'of the denials it tells once');
$b->query('SELECT zk_lock_release_all()');
$node->wait_until('SELECT ephemeral_bytes = 0 FROM zk_status');

# --- no permission to delete ---

allow('/zklock/app/kept', 'crw');
is($b->query(try('/app/kept')), 't', 'deleting is forbidden: a lock can be had');
is($b->query(release('/app/kept')), 't', 'and released');
$node->wait_for_log(qr/could not delete the znode of lock "\/app\/kept"/);
my $bytes = $node->status('ephemeral_bytes');
cmp_ok($bytes, '>', 0, 'the znode that stays is counted');
is(scalar(@{ $zk->children('/zklock/app/kept') }), 1, 'it is there');
$result = $b->run(try('/app/kept'));
is($result->{errcode}, '28000', 'the next acquire fails');
like($result->{err}, qr/could not be deleted, and stays until/, 'and says why');
is($node->status('ephemeral_bytes'), $bytes, 'the znode still counts');
is($b->query(try('/app/one')), 't', 'other locks are not concerned');
allow('/zklock/app/kept', 'cdrw');
is($b->query(acquire('/app/kept', '1min')), 't', 'when deleting is allowed, the lock is as any other');
$b->query('SELECT zk_lock_release_all()');
$node->wait_until('SELECT ephemeral_bytes = 0 FROM zk_status');
is(scalar(@{ $zk->children('/zklock/app/kept') }), 0, 'nothing is left');

# --- an ensemble that demands SASL, which zklock does not have ---

$b->quit;
$node->stop;
$zk->{java_opts} = '-Dzookeeper.sessionRequireClientSASLAuth=true -Dzookeeper.authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider';
$zk->restart;
$node->start;
$node->wait_until(q{SELECT last_error ~ 'or SASL, which zklock does not have' FROM zk_status});
$b = $node->backend;
$result = $b->run(acquire('/app/one', '1min'));
is($result->{errcode}, '28000', 'ZooKeeper demands SASL: 28000');
like($result->{err}, qr/DETAIL:  The last error was: .* or SASL, which zklock does not have/, 'and why');

$b->quit;
$node->stop;
done_testing();
