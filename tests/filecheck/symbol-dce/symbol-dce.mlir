// RUN: tpusim opt -p 'symbol-dce' %s | filecheck %s
//
// A private function goes if nothing alive calls it, and so does what only that one calls.

module attributes {module.state = "TOP_F32"} {
  func.func @main(%in: tensor<1x4xf32>) -> tensor<1x4xf32> {
    %x = "top.Input"(%in) : (tensor<1x4xf32>) -> tensor<1x4xf32> loc("x")
    %y = "top.Relu"(%x) : (tensor<1x4xf32>) -> tensor<1x4xf32> loc("y")
    func.return %y : tensor<1x4xf32>
  }
  func.func private @inner(%n: i32) -> i32 {
    func.return %n : i32
  }
  func.func private @outer(%n: i32) -> i32 {
    %r = func.call @inner(%n) : (i32) -> i32
    func.return %r : i32
  }
  func.func private @called(%n: i32) -> i32 {
    func.return %n : i32
  }
  func.func @public(%n: i32) -> i32 {
    %r = func.call @called(%n) : (i32) -> i32
    func.return %r : i32
  }
}

// CHECK:      func.func @main(
// CHECK-NEXT: %x = "top.Input"(%in) : (tensor<1x4xf32>) -> tensor<1x4xf32> loc("x")
// CHECK-NEXT: %y = "top.Relu"(%x) : (tensor<1x4xf32>) -> tensor<1x4xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<1x4xf32>
// CHECK:      func.func private @called(
// CHECK-NEXT: func.return %n : i32
// CHECK:      func.func @public(
// CHECK-NEXT: %r = func.call @called(%n) : (i32) -> i32
// CHECK-NEXT: func.return %r : i32
