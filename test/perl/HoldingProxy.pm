
=head1 NAME

HoldingProxy - a connection that a TAP test can hold up and cut

=head1 SYNOPSIS

	my $proxy = HoldingProxy->new($zk->hosts);		# before there are servers
	my $node = ZklockNode->started('a', undef, 'zklock.hosts' => $proxy->address);

	$proxy->hold('replies');
	...							# what the node asks for now is done and not answered
	$proxy->cut;

Held requests and replies are lost when the connection is cut, so the test knows for certain
which requests were carried out.

=cut

package HoldingProxy;

use strict;
use warnings;

use Carp;
use IO::Handle;
use IO::Select;
use IO::Socket::INET;
use IO::Socket::UNIX;
use List::Util qw(max);
use POSIX ();
use Socket;
use Time::HiRes qw(time);

=head1 METHODS

=over

=item HoldingProxy->new($target, spoil => \&spoil, record => $file, addresses => 1)

Listen, and connect every client to C<$target>, an address with a port, or the path of a socket.  It is a process
of its own, and ends with the test.  C<spoil> is for the method of that name.  What comes from
either side is written to the file C<record>.

=item $proxy->address

The addresses at which the proxy listens, separated by commas.

=item $proxy->delay($seconds), $proxy->limit($bytes, $piece)

From now on, each reply comes so much later; or so many bytes a second come from each server, in pieces of
C<$piece> bytes.  0 ends that.

=item $proxy->hold('requests'), $proxy->hold('replies')

Let no more of these pass, on all connections.

=item $proxy->tear

Let only the first bytes of the next reply pass, and no more replies.

=item $proxy->pass

Let what is held up pass now, in its order, and all that comes later.

=item $proxy->cut

Close all connections.  New ones are let pass again.

=item $proxy->keep

The same, but the held requests are kept: C<deliver> sends them late, as a network or a server
does that has held them up.

=item $proxy->spoil($how), $proxy->is_spoilt

Call the function C<spoil> for each reply, with C<$how>, the type of the request (C<connect>, or
ZooKeeper's number) and the reply without its length, until it returns something; with C<always>, even
then.  That goes to the client in place of the reply, as it is.  And: has it?

=item $proxy->deliver

Send the kept requests, on a connection of the same session, while no other connection gets
through.  Returns how many of the requests ZooKeeper has carried out.

=back

=cut

my ($record, $tears);

sub new
{
	my ($class, $target, %options) = @_;
	my @listeners = map { IO::Socket::INET->new(Listen => 5, LocalAddr => '127.0.0.1') or croak "could not listen: $!" }
	  1 .. $options{addresses} // 1;
	socketpair(my $ours, my $its, AF_UNIX, SOCK_STREAM, PF_UNSPEC)
	  or croak "could not make a socket pair: $!";

	my $pid = fork // croak "could not fork: $!";
	if (!$pid)
	{
		close $ours;
		$record = $options{record};
		eval { _serve(\@listeners, $its, $target, $options{spoil}) };
		POSIX::_exit(0);
	}
	close $its;
	$ours->autoflush;
	return bless { control => $ours, address => join(',', map { '127.0.0.1:' . $_->sockport } @listeners) }, $class;
}

sub address { my ($self) = @_; return $self->{address}; }
sub hold { my ($self, $what) = @_; return $self->_tell("hold $what"); }
sub delay { my ($self, $seconds) = @_; return $self->_tell("delay $seconds"); }
sub limit { my ($self, $bytes, $piece) = @_; return $self->_tell("limit $bytes " . ($piece // 1)); }
sub tear { my ($self) = @_; return $self->_tell('tear'); }
sub pass { my ($self) = @_; return $self->_tell('pass'); }
sub cut { my ($self) = @_; return $self->_tell('cut'); }
sub keep { my ($self) = @_; return $self->_tell('keep'); }
sub spoil { my ($self, $how) = @_; return $self->_tell("spoil $how"); }
sub is_spoilt { my ($self) = @_; return $self->_tell('is spoilt') eq 'yes'; }
sub deliver { my ($self) = @_; return $self->_tell('deliver'); }

sub _tell
{
	my ($self, $command) = @_;
	print { $self->{control} } "$command\n";
	my $answer = readline($self->{control}) // croak 'the proxy has died';
	chomp $answer;
	return $answer;
}

# --- the other process ---

my (%peer, %is_client, $held);
my ($spoil, $spoil_how);
my (%part_of, %requests);		# a connection => a frame that is not complete; its requests
my %session_of;					# a connection to the server => its session, packed
my ($kept_session, $kept) = ('', '');
my ($delay, $limit, $piece) = (0, 0, 1);
my (%late, %busy_until);		# a connection to the server => when to pass which bytes; when its line is free

sub _serve
{
	(my ($listeners, $control, $target), $spoil) = @_;
	my %listens = map { $_ => 1 } @$listeners;
	$control->autoflush;
	$SIG{PIPE} = 'IGNORE';

	while (1)
	{
		my $now = time;
		my @passing = grep { !defined $held || $held ne ($is_client{$_} ? 'requests' : 'replies') }
		  grep { !$limit || ($busy_until{$_} // 0) <= $now + 0.02 } map { $_->[0] } values %peer;
		foreach my $ready (IO::Select->new(@$listeners, $control, @passing)->can_read(_pass_late($now)))
		{
			if ($listens{$ready}) { _connect(scalar $ready->accept, $target); }
			elsif ($ready == $control) { _obey($control, $target); }
			elsif ($peer{$ready}) { _pass($ready); }
		}
	}
}

# Pass what is due.  Returns the seconds until more is due; undef if nothing is late.
sub _pass_late
{
	my ($now) = @_;
	my $next;
	foreach my $from (map { $_->[0] } grep { $late{ $_->[0] } } values %peer)
	{
		my $queue = $late{$from};
		while (@$queue && $queue->[0][0] <= $now) { _write($from, (shift @$queue)->[1]) or last; }
		$next = $queue->[0][0] if @$queue && (!defined $next || $queue->[0][0] < $next);
	}
	return defined $next ? $next - $now : undef;
}

sub _obey
{
	my ($control, $target) = @_;
	my $command = readline($control) // POSIX::_exit(0);
	my $answer = 'done';
	if ($command =~ /^hold (\w+)/) { $held = $1; }
	elsif ($command =~ /^delay (\S+)/) { $delay = $1; }
	elsif ($command =~ /^limit (\d+) (\d+)/) { ($limit, $piece) = ($1, $2); }
	elsif ($command =~ /^tear/) { $tears = 1; }
	elsif ($command =~ /^pass/) { undef $held; }
	elsif ($command =~ /^deliver/) { $answer = _deliver($target); }
	elsif ($command =~ /^spoil (.*)/) { $spoil_how = $1; }
	elsif ($command =~ /^is spoilt/) { $answer = defined $spoil_how ? 'no' : 'yes'; }
	else
	{
		_keep() if $command =~ /^keep/;
		my @all = map { $_->[0] } values %peer;
		_hang_up($_) foreach @all;
		undef $held;
	}
	print $control "$answer\n";
	return;
}

# Whole requests: the client was not waiting for room.
sub _keep
{
	foreach my $client (grep { $is_client{$_} } map { $_->[0] } values %peer)
	{
		$client->blocking(0);
		while (sysread $client, my $data, 65536) { $kept .= $data; }
		$kept_session = $session_of{ $peer{$client}[1] };
	}
	return;
}

sub _deliver
{
	my ($target) = @_;
	my $server = IO::Socket::INET->new(PeerAddr => $target) or return 'no server';
	my $requests = () = unpack('(N/a)*', $kept);
	my $done = 0;

	# Protocol 0, no zxid seen, a timeout of 4 s, the session's id and password, and not
	# only for reading.
	print $server pack('N/a', pack('N x8 N a8 N/a C', 0, 4000, unpack('a8 a16', $kept_session), 0));
	_read_packet($server) // return 'no connection';
	print $server $kept;
	while ($requests-- > 0)
	{
		# xid, zxid and the code of an error
		my ($xid, $code) = unpack 'N x8 N', _read_packet($server) // last;
		$done++ if $code == 0;
	}
	$kept = '';
	return $done;
}

sub _read_packet
{
	my ($server) = @_;
	read($server, my $length, 4) or return;
	read($server, my $packet, unpack 'N', $length) or return;
	return $packet;
}

sub _connect
{
	my ($client, $target) = @_;
	my $server = $target =~ m{^/} ? IO::Socket::UNIX->new($target) : IO::Socket::INET->new(PeerAddr => $target);
	return unless $server;
	$peer{$client} = [ $client, $server ];
	$peer{$server} = [ $server, $client ];
	$is_client{$client} = 1;
	return;
}

sub _pass
{
	my ($from) = @_;
	return _hang_up($from) unless sysread $from, my $data, $limit ? 4096 : 65536;
	_record($data) if defined $record;
	if ($tears && !$is_client{$from})
	{
		$data = substr $data, 0, 10;
		($tears, $held) = (0, 'replies');
	}

	# The first packet of ZooKeeper: length, protocol, timeout, id, and the password.
	$session_of{$from} //= pack 'a8 a16', unpack('x12 a8 x4 a16', $data)
	  if !$is_client{$from} && length $data >= 40;
	$data = _spoil($from, $data) if $spoil;
	return _write($from, $data) if $is_client{$from} || !($delay || $limit || @{ $late{$from} // [] });
	foreach my $part ($limit ? unpack "(a$piece)*", $data : $data)
	{
		my $begins = max($busy_until{$from} // 0, time);
		$busy_until{$from} = $begins + ($limit ? length($part) / $limit : 0);
		push @{ $late{$from} }, [ $busy_until{$from} + $delay, $part ];
	}
	return;
}

# False if the connection is gone.
sub _write
{
	my ($from, $data) = @_;
	while (length $data)
	{
		my $n = syswrite($peer{$from}[1], $data);
		return _hang_up($from) if !defined $n;
		substr($data, 0, $n) = '';
	}
	return 1;
}

sub _record
{
	my ($data) = @_;
	open my $file, '>>:raw', $record or return;
	print $file $data;
	close $file;
	return;
}

# Whole frames only, each perhaps spoilt.
sub _spoil
{
	my ($from, $data) = @_;
	my $result = '';
	$part_of{$from} .= $data;
	while (length $part_of{$from} >= 4 && length $part_of{$from} >= 4 + unpack 'N', $part_of{$from})
	{
		my $frame = unpack 'N/a', $part_of{$from};
		substr($part_of{$from}, 0, 4 + length $frame) = '';
		my $other;
		if (!$is_client{$from})
		{
			my $requests = $requests{ $peer{$from}[1] };
			my $type = delete $requests->{first} // delete $requests->{ substr $frame, 0, 4 } // 'event';
			$other = $spoil->($spoil_how, $type, $frame) if defined $spoil_how;
			undef $spoil_how if defined $other && $spoil_how ne 'always';
		}
		# The first request has no number, and neither has its answer.
		elsif (!$requests{$from}) { $requests{$from} = { first => 'connect' }; }
		else { $requests{$from}{ substr $frame, 0, 4 } = unpack 'x4 l>', $frame; }
		$result .= $other // pack 'N/a', $frame;
	}
	return $result;
}

sub _hang_up
{
	my ($socket) = @_;
	foreach my $end (@{ $peer{$socket} // [] })
	{
		delete $peer{$end};
		delete $is_client{$end};
		delete @$_{$end} foreach \(%session_of, %part_of, %requests, %late, %busy_until);
		close $end;
	}
	return;
}

1;
