
# Curator, kazoo and go-zookeeper with the identity of zklock, and with another one, on paths whose
# znodes each makes for itself alone.

use strict;
use warnings;

use InteropPeer;
use ZklockTest;

my $OURS = 'zklock:oo4U-ieph';
my $THEIRS = 'theirs:Eib2-ahch';

my $zk = ZooKeeper->new;
$zk->exists('/', user => $OURS);	# as this user, the test itself looks at znodes
my $file = PostgreSQL::Test::Utils::tempdir('identity') . '/credentials';
append_to_file($file, "digest $OURS\n");
chmod 0600, $file;
my $node = ZklockNode->started('a', $zk, 'zklock.session_timeout' => '30s', 'zklock.linger' => 0,
	'zklock.auth_file' => $file, 'zklock.acl' => 'creator');
my ($a1, $a2) = map { $node->backend } 1, 2;

foreach my $service (qw(curator kazoo), InteropPeer->go_library ? 'go' : ())
{
	my $friend = InteropPeer->$service($zk, user => $OURS)->actor('c1');
	my $other = InteropPeer->$service($zk, user => $THEIRS)->actor('c2');

	# The directory is made by zklock, then by the service.
	$a1->query("SELECT zk_lock_acquire('/$service/ours')");
	is($friend->query("acquire mutex /zklock/$service/ours 200"), 'f', "$service, same identity: zklock has the lock")
	  unless $service eq 'go';		# its Lock has no timeout
	$friend->send("acquire mutex /zklock/$service/ours");
	$zk->wait_for_children("/zklock/$service/ours", 2);
	$a1->query("SELECT zk_lock_release('/$service/ours')");
	is($friend->answer, 't', 'then the service has it');
	is($a1->query("SELECT zk_lock_acquire('/$service/ours', '0')"), 'f', 'and zklock does not');
	$a1->send("SELECT zk_lock_acquire('/$service/ours')");
	$node->wait_for_ticket("/$service/ours", 'queued');
	$friend->query("release mutex /zklock/$service/ours");
	is($a1->result->{out}, 't', 'then zklock again');

	is($friend->query("acquire mutex /zklock/$service/new"), 't', "$service, same identity: makes a directory");
	is($a2->query("SELECT zk_lock_acquire('/$service/new', '0')"), 'f', 'in which zklock queues');
	is($a2->query("SELECT count(*) FROM zk_lock_queue('/$service/new') WHERE holds AND client <> 'zklock'"), '1', 'and sees that the service holds the lock');
	is(scalar(grep { $_->[0] eq 'world' } map { @{ $zk->acl($_) } } @{ $zk->tree("/zklock/$service") }), 0,
		'nothing of it is for everybody');
	$friend->query("release mutex /zklock/$service/new");

	# Another identity gets nowhere, in neither direction.
	my $result = $other->run("acquire mutex /zklock/$service/ours");
	like("$result->{errcode} $result->{err}", qr/NoAuth|not authenticated/, "$service, another identity: denied on zklock's path");
	is(scalar(@{ $zk->children("/zklock/$service/ours") }), 1, 'and leaves nothing there');
	is($a1->query("SELECT zk_lock_is_held('/$service/ours')"), 't', 'zklock holds its lock');
	# The Lock of Go looks whether each directory exists, and ZooKeeper 3.9.2 says so only to those that may read it.
	$zk->set_acl('/zklock', [ @{ $zk->acl('/zklock')->[0] }[0, 1], 'cdrwa' ], [ 'world', 'anyone', 'r' ]) if $service eq 'go';
	$zk->create("/zklock/open_$service", acl => [ [ 'world', 'anyone', 'cdrwa' ] ]);
	is($other->query("acquire mutex /zklock/open_$service/theirs"), 't', "$service, another identity: a path of its own");
	$result = $a2->run("SELECT zk_lock_acquire('/open_$service/theirs')");
	is($result->{errcode}, '28000', 'on which zklock is denied');
	$a1->query('SELECT zk_lock_release_all()');
}
$_->quit foreach $a1, $a2;
$node->stop;
done_testing();
