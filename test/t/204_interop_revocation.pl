
# Revocation, both ways: Curator's Revoker asks zklock, zk_lock_revoke() asks Curator's Revocable;
# and what zklock does when its release is requested.

use strict;
use warnings;

use Contender;
use InteropPeer;
use ZklockTest;

my $zk = ZooKeeper->new;
my %settings = ('zklock.session_timeout' => '30s', 'zklock.tenure' => '1h', 'zklock.linger' => '1h');
my $node_a = ZklockNode->started('a', $zk, %settings);
my $node_b = ZklockNode->started('b', $zk, %settings);
my ($a1, $a2, $b1) = map { $_->backend } $node_a, $node_a, $node_b;
my $curator = InteropPeer->curator($zk);
my ($c1, $c2) = map { $curator->actor($_) } qw(c1 c2);

# The path of the first znode in the queue, for a Revoker.
sub first_of
{
	my ($path) = @_;
	return "/zklock$path/" . $b1->query("SELECT znode FROM zk_lock_queue('$path') ORDER BY position LIMIT 1");
}

sub is_revoked { my ($backend, $path) = @_; return $backend->query("SELECT zk_lock_is_revoked('$path')"); }

sub wait_until_revoked
{
	my ($node, $path) = @_;
	$node->wait_until("SELECT bool_or(revoked) FROM zk_locks WHERE path = '$path'");
	return;
}

# --- Curator asks zklock ---

foreach my $case (
	[ 'mutex', "zk_lock_acquire('%s')", "zk_lock_release('%s')" ],
	[ 'writer', "zk_write_lock_acquire('%s')", "zk_write_lock_release('%s')" ],
	[ 'reader', "zk_read_lock_acquire('%s')", "zk_read_lock_release('%s')" ])
{
	my ($what, $acquire, $release) = @$case;
	my $path = "/from_curator_$what";
	$a1->query('SELECT ' . sprintf $acquire, $path);
	is(is_revoked($a1, $path), 'f', "$what: no client requests the release");
	$c1->query('revoke ' . first_of($path));
	wait_until_revoked($node_a, $path);

	$a1->send("SELECT zk_lock_token('$path') > 0");
	my $result = $a1->result;
	is($result->{out}, 't', "$what: it is held all the same");
	like($result->{err}, qr/NOTICE:  00000: release of lock "\Q$path\E" has been requested/, "$what: a notice, at the next call");
	$a1->send('SELECT ' . sprintf "zk_lock_is_revoked('%s')", $path);
	$result = $a1->result;
	is($result->{out}, 't', "$what: and the function says so");
	unlike($result->{err}, qr/NOTICE/, "$what: one notice is enough");

	is($a1->query('SELECT ' . sprintf $release, $path), 't', "$what: released");
	$zk->wait_for_children("/zklock$path", 0);
	is($a1->query('SELECT ' . sprintf $acquire, $path), 't', "$what: acquired again, with a new ticket");
	is(is_revoked($a1, $path), 'f', "$what: whose release no client requests");
	$a1->query('SELECT ' . sprintf $release, $path);
}

# A ticket whose release was requested is not handed on within the server, however long the tenure
# is.
$a1->query(acquire('/turn'));
$a2->send(acquire('/turn'));
$node_a->wait_for_waiter('/turn', 1);
my $theirs = Contender->foreign($c1, 'mutex')->queue($zk, '/turn');
$c2->query('revoke ' . first_of('/turn'));
wait_until_revoked($node_a, '/turn');
$a1->query(release('/turn'));
is($c1->answer, 't', 'the requester comes before the waiters of the same server');
ok(!$a2->is_done, 'and these wait for their turn');
$c1->query('release mutex /zklock/turn');
is($a2->answer, 't', 'which comes');
$a2->query(release('/turn'));

# A transaction whose lock is requested goes on to its end.
$a1->query("BEGIN");
$a1->query("SELECT zk_xact_lock_acquire('/xact')");
$c1->query('revoke ' . first_of('/xact'));
wait_until_revoked($node_a, '/xact');
$a1->query('CREATE TABLE made_while_asked ()');
is($a1->errcode('COMMIT'), '', 'asked is not lost: the transaction commits');

# --- zklock asks Curator ---

$c1->query('revocable /zklock/to_curator release');
is($c1->query('acquire mutex /zklock/to_curator'), 't', 'Curator holds a lock and may be asked');
$a1->send(acquire('/to_curator'));
$node_a->wait_for_ticket('/to_curator', 'queued');
is($b1->query("SELECT zk_lock_revoke('/to_curator')"), '1', 'one holder was asked');
$c1->wait_for_event('released /zklock/to_curator');
is($a1->answer, 't', 'it lets go, and zklock has the lock');
$a1->query(release('/to_curator'));

$c1->query('revocable /zklock/stubborn report');
$c1->query('acquire mutex /zklock/stubborn');
is($a1->query("SELECT zk_lock_revoke('/stubborn')"), '1', 'another is asked');
is($a1->query(try('/stubborn')), 'f', 'and need not let go');
is($a1->query("SELECT zk_lock_force_release('/stubborn')"), '1', 'a role with the privilege takes the lock away');
is($a1->query(acquire('/stubborn')), 't', 'and gets it');
$a1->query(release('/stubborn'));

# --- zklock asks zklock, on another server and on its own ---

foreach ([ 'another server', $b1 ], [ 'the same server', $a2 ])
{
	my ($where, $who) = @$_;
	my $path = '/own_' . $where =~ s/ /_/gr;
	$a1->query(acquire($path));
	is($who->query("SELECT zk_lock_revoke('$path')"), '1', "$where asks");
	wait_until_revoked($node_a, $path);
	is(is_revoked($a1, $path), 't', "$where: the holder is told");
	$a1->query(release($path));
	is($who->query(acquire($path)), 't', "$where has it");
	$who->query(release($path));
}

# The release of each lease of a semaphore is requested, on every server.
$a1->query("SELECT zk_semaphore_acquire('/leases', 4, NULL, 2)");
$b1->query("SELECT zk_semaphore_acquire('/leases', 4)");
is($a2->query("SELECT zk_lock_revoke('/leases')"), '3', 'three leases are asked for');
wait_until_revoked($_, '/leases') foreach $node_a, $node_b;
is(is_revoked($_, '/leases'), 't', 'and their holders are told') foreach $a1, $b1;
$_->query("SELECT zk_lock_release_all()") foreach $a1, $b1;
$zk->wait_for_children('/zklock/leases/leases', 0);

# A server gives up a lingering ticket when its release is requested.
$a1->query("SELECT zk_lock_acquire('/lingers'), zk_lock_release('/lingers')") foreach 1 .. 2;
$node_a->wait_for_ticket('/lingers', 'lingering');
$b1->query("SELECT zk_lock_revoke('/lingers')");
$zk->wait_for_children('/zklock/lingers', 0);
pass('a lingering ticket is given up when it is asked for');

is($a1->errcode("SELECT zk_lock_is_revoked('/lingers')"), '55000', 'a server that does not hold a lock is not asked for it');
is($a1->query("SELECT zk_lock_revoke('/nobody')"), '0', 'no holder to ask');

done_testing();
