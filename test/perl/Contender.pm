
=head1 NAME

Contender - a client that wants a lock, through zklock, Curator, kazoo or go-zookeeper

=head1 SYNOPSIS

	my $ours = Contender->zklock($node->backend, $node);
	my $theirs = Contender->foreign($curator->actor('c1'), 'mutex');

	is($theirs->acquire('/job'), 't');
	is($ours->try('/job'), 'f');
	$ours->queue($zk, '/job');
	ok(!$ours->is_done);
	$theirs->release('/job');
	is($ours->answer, 't');

Paths are those of zklock; other clients find them below C</zklock>.

=cut

package Contender;

use strict;
use warnings;

=head1 METHODS

=over

=item Contender->zklock($backend, $node, acquire => sub { ... }, release => sub { ... })

A backend, with the SQL that acquires and releases: functions of a path and, for C<acquire>, of
a timeout in ms or undef.  Without them, the SQL is that of the mutex.

=item Contender->foreign($actor, $kind, $quantity)

An actor of L<InteropPeer>; the quantity is that of a semaphore.

=cut

sub zklock
{
	my ($class, $backend, $node, %sql) = @_;
	return bless {
		party => $backend,
		node => $node,
		session => sub { $node->status('session_id') },
		acquire => $sql{acquire} // sub {
			my ($path, $ms) = @_;
			return "SELECT zk_lock_acquire('$path'" . (defined $ms ? ", '$ms ms')" : ')');
		},
		release => $sql{release} // sub { "SELECT zk_lock_release('$_[0]')" },
	}, $class;
}

sub foreign
{
	my ($class, $actor, $kind, $quantity) = @_;
	my $how_many = defined $quantity ? " $quantity" : '';
	return bless {
		party => $actor,
		session => sub { $actor->session },
		acquire => sub { my ($path, $ms) = @_; return "acquire $kind /zklock$path " . ($ms // '-') . $how_many; },
		release => sub { "release $kind /zklock$_[0]$how_many" },
	}, $class;
}

=item $c->acquire($path, $ms), $c->try($path), $c->release($path)

Wait for the answer, C<t> or C<f>; die if it is an error.  Without C<$ms> there is no limit.

=item $c->send_acquire($path, $ms), $c->is_done, $c->answer, $c->result

As those of L<ZklockBackend>.

=item $c->party, $c->node

The backend or actor; the server, or undef if the contender is not zklock.

=item $c->queue($zk, $path, $for_whom)

C<send_acquire>, and wait until the contender's znode is there and its ZooKeeper session watches
the znode before, which is how every client waits.  From then on, a contender without the lock
has not been given it.  No other client may come meanwhile, but others may go.

With a pattern C<$for_whom>, the session may watch any earlier znode that matches.

=item $c->queue_in($zk, $directory, $path, $for_whom)

The same, for a queue in another directory than the path of the lock says.

=item $c->wait_until_watching($zk, $znode)

The same for another znode than the one before.

=item Contender::queue_of($zk, $path)

Paths of the znodes in the lock's directory, in order of their numbers.

=back

=cut

sub acquire { my ($self, $path, $ms) = @_; return $self->{party}->query($self->{acquire}->($path, $ms)); }
sub try { my ($self, $path) = @_; return $self->acquire($path, 0); }
sub release { my ($self, $path) = @_; return $self->{party}->query($self->{release}->($path)); }
sub send_acquire { my ($self, $path, $ms) = @_; return $self->{party}->send($self->{acquire}->($path, $ms)); }
sub is_done { my ($self) = @_; return $self->{party}->is_done; }
sub answer { my ($self) = @_; return $self->{party}->answer; }
sub result { my ($self) = @_; return $self->{party}->result; }
sub party { my ($self) = @_; return $self->{party}; }
sub node { my ($self) = @_; return $self->{node}; }

sub queue
{
	my ($self, $zk, $path, $for_whom) = @_;
	return $self->queue_in($zk, $path, $path, $for_whom);
}

sub queue_in
{
	my ($self, $zk, $directory, $path, $for_whom) = @_;
	my %was_there = map { $_ => 1 } queue_of($zk, $directory);
	my $session = $self->{session}->();

	$self->send_acquire($path);
	return $zk->wait_until(
		sub {
			my @queue = queue_of($zk, $directory);
			my ($mine) = grep { !$was_there{ $queue[$_] } } 0 .. $#queue;
			return '' unless $mine;
			my @before = $for_whom ? grep { /$for_whom/ } @queue[ 0 .. $mine - 1 ] : $queue[ $mine - 1 ];
			return grep { _is_watching($zk, $session, $_) } @before;
		},
		"session $session to queue for $path");
}

sub wait_until_watching
{
	my ($self, $zk, $znode) = @_;
	my $session = $self->{session}->();
	return $zk->wait_until(sub { _is_watching($zk, $session, $znode) },
		"session $session to watch $znode");
}

sub _is_watching
{
	my ($zk, $session, $znode) = @_;
	return scalar grep { $zk->cmd('wchc', $_) =~ /^\Q$session\E\n(?:\t.*\n)*\t\Q$znode\E$/m } 1 .. $zk->{servers};
}

# A znode without a number goes first.
sub queue_of
{
	my ($zk, $path) = @_;
	my %number = map { $_ => /(\d{10})$/ ? $1 : -1 } @{ $zk->children("/zklock$path") };
	return map { "/zklock$path/$_" } sort { $number{$a} <=> $number{$b} } keys %number;
}

1;
